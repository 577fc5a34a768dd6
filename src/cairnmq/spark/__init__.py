"""Topics as tables of Spark: format("cairnmq"), without a jar."""

from cairnmq.spark.registration import register as register
from cairnmq.spark.registration import session as session
from cairnmq.spark.registration import topic as topic
