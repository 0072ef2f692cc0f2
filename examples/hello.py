"""Hello, world: a Kafka, a record, a pipeline that prints it. `python examples/hello.py`"""

from confluent_kafka import Producer

from anabranch import Broker, Pipeline

with Broker() as broker:
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        producer.produce("names", key="ada", value="hello, Ada")

    hello = Pipeline("hello").read("names", str).process(print)
    hello.run(engine="async", bootstrap=broker.bootstrap, until="end")
