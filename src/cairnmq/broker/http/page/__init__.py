"""The files of the status page: HTML, CSS and JavaScript as a browser gets them."""
