"""At least once: everything is handled, some of it perhaps twice.

python at_least_once.py 127.0.0.1:9092 send 100
python at_least_once.py 127.0.0.1:9092 receive
"""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def send(bootstrap: str, count: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True) as producer:
        sent = [await producer.send("parcels", f"parcel {number}".encode()) for number in range(count)]
        await asyncio.gather(*sent)  # raises if one was not stored


async def handle(parcel: str) -> None:
    await asyncio.sleep(0.01)  # the work
    print(parcel, flush=True)


async def receive(bootstrap: str) -> None:
    consumer = AIOKafkaConsumer(
        "parcels",
        bootstrap_servers=bootstrap,
        group_id="shipping",
        group_instance_id="shipping-1",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer:
        while True:
            for messages in (await consumer.getmany(timeout_ms=1000, max_records=20)).values():
                for message in messages:
                    await handle(message.value.decode())
            await consumer.commit()  # last


if __name__ == "__main__":
    asyncio.run(send(sys.argv[1], int(sys.argv[3])) if sys.argv[2] == "send" else receive(sys.argv[1]))
