# Fields of msgspec Structs, read by their place in the object: a lookup by name costs more than all the work on a field.
# Whoever asks must have made sure of the object's exact type. Included, not imported.

cdef extern from *:
    """
    #include <structmember.h>

    static Py_ssize_t cairn_field_place(PyObject *type, PyObject *name) {
        Py_ssize_t place = -1;
        PyObject *found = PyObject_GetAttr(type, name);
        if (found == NULL)
            return -1;
        if (Py_TYPE(found) == &PyMemberDescr_Type && (PyObject *)PyDescr_TYPE(found) == type
                && ((PyMemberDescrObject *)found)->d_member->type == T_OBJECT_EX)
            place = ((PyMemberDescrObject *)found)->d_member->offset;
        else
            PyErr_Format(PyExc_ImportError, "%R is not stored as this kernel expects", found);
        Py_DECREF(found);
        return place;
    }

    static inline PyObject *cairn_field(PyObject *object, Py_ssize_t place) {
        PyObject *value = *(PyObject **)((char *)object + place);
        if (value == NULL)
            PyErr_SetString(PyExc_AttributeError, "a field is not set");
        else
            Py_INCREF(value);
        return value;
    }
    """
    Py_ssize_t cairn_field_place(object type, object name) except -1
    object cairn_field(object struct, Py_ssize_t place)
