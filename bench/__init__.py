"""`make bench`: speed and size of CairnMQ, beside Apache Kafka where that makes sense. Not installed."""
