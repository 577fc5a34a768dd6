// Transactions of the Java client, step by step, and a transformer that reads, sends and commits in one.

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

final class Transactions {
    private static final int MILLIS = 20_000;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Set<String> begun = new HashSet<>();
    private final Map<String, KafkaConsumer<byte[], byte[]>> readers = new HashMap<>();

    private static KafkaProducer<byte[], byte[]> open(JsonNode ask, String id, int timeoutMs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", ask.get("bootstrap").asText());
        settings.put("transactional.id", id);
        settings.put("transaction.timeout.ms", timeoutMs);
        settings.put("max.block.ms", MILLIS);
        settings.put("delivery.timeout.ms", MILLIS);
        settings.put("request.timeout.ms", MILLIS / 4);
        settings.put("reconnect.backoff.max.ms", 200);
        var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        return producer;
    }

    Object open(JsonNode ask) {
        String name = ask.get("producer").asText();
        producers.put(name, open(ask, ask.get("transactional_id").asText(), ask.get("timeout_ms").asInt()));
        return null;
    }

    Object send(JsonNode ask) throws Exception {
        String name = ask.get("producer").asText();
        KafkaProducer<byte[], byte[]> producer = producers.get(name);
        if (begun.add(name)) {
            producer.beginTransaction();
        }
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode value : ask.get("values")) {
            byte[] bytes = value.asText().getBytes(StandardCharsets.UTF_8);
            sent.add(producer.send(new ProducerRecord<>(
                ask.get("topic").asText(), ask.get("partition").asInt(), null, bytes)));
        }
        producer.flush();
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> one : sent) {
            offsets.add(one.get().offset());
        }
        return offsets;
    }

    Object end(JsonNode ask) {
        String name = ask.get("producer").asText();
        KafkaProducer<byte[], byte[]> producer = producers.get(name);
        begun.remove(name);
        for (int tries = 0; ; tries++) {
            try {
                if (ask.get("commit").asBoolean()) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                return null;
            } catch (TimeoutException unknown) {
                if (tries == 2) {
                    throw unknown;
                }
            }
        }
    }

    Object close(JsonNode ask) {
        producers.remove(ask.get("producer").asText()).close(Duration.ZERO);
        begun.remove(ask.get("producer").asText());
        return null;
    }

    Object read(JsonNode ask) {
        String level = ask.get("committed").asBoolean() ? "read_committed" : "read_uncommitted";
        List<List<Object>> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = Program.consumer(ask, Map.of("isolation.level", level))) {
            List<TopicPartition> places = places(consumer, ask.get("topic").asText());
            consumer.assign(places);
            consumer.seekToBeginning(places);
            Map<TopicPartition, Long> ends = consumer.endOffsets(places);
            while (places.stream().anyMatch(place -> consumer.position(place) < ends.get(place))) {
                found.addAll(polled(consumer));
            }
        }
        return found;
    }

    private static List<List<Object>> polled(KafkaConsumer<byte[], byte[]> consumer) {
        List<List<Object>> found = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
            String value = new String(record.value(), StandardCharsets.UTF_8);
            found.add(List.of(record.partition(), record.offset(), value));
        }
        return found;
    }

    /** A reader of committed records that stays: of all partitions from their beginning, or in a group. */
    Object follow(JsonNode ask) {
        String topic = ask.get("topic").asText();
        Map<String, Object> options = new HashMap<>(Map.of(
            "isolation.level", "read_committed", "auto.offset.reset", "earliest", "reconnect.backoff.max.ms", 200,
            "request.timeout.ms", MILLIS / 4, "fetch.max.wait.ms", 100));
        if (!ask.get("group").isNull()) {
            options.putAll(Map.of(
                "group.id", ask.get("group").asText(), "session.timeout.ms", 4_000, "heartbeat.interval.ms", 500,
                "max.poll.records", ask.get("count").asInt()));
        }
        KafkaConsumer<byte[], byte[]> consumer = Program.consumer(ask, options);
        if (ask.get("group").isNull()) {
            List<TopicPartition> places = places(consumer, topic);
            consumer.assign(places);
            consumer.seekToBeginning(places);
        } else {
            consumer.subscribe(List.of(topic));
        }
        readers.put(ask.get("reader").asText(), consumer);
        return null;
    }

    Object poll(JsonNode ask) {
        return polled(readers.get(ask.get("reader").asText()));
    }

    Object rewind(JsonNode ask) {
        goBack(readers.get(ask.get("reader").asText()), System.nanoTime() + MILLIS * 1_000_000L);
        return null;
    }

    Object offsets(JsonNode ask) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (JsonNode pair : ask.get("ends")) {
            offsets.put(new TopicPartition(ask.get("topic").asText(), pair.get(0).asInt()),
                new OffsetAndMetadata(pair.get(1).asLong()));
        }
        producers.get(ask.get("producer").asText()).sendOffsetsToTransaction(
            offsets, readers.get(ask.get("reader").asText()).groupMetadata());
        return null;
    }

    private static List<TopicPartition> places(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        List<TopicPartition> places = new ArrayList<>();
        for (PartitionInfo info : consumer.partitionsFor(topic)) {
            places.add(new TopicPartition(topic, info.partition()));
        }
        return places;
    }

    /** From one topic to another, until the group has committed all of it. */
    Object transform(JsonNode ask) throws Exception {
        String source = ask.get("source").asText();
        String id = ask.get("transactional_id").asText();
        long deadline = System.nanoTime() + (long) (ask.get("seconds").asDouble() * 1e9);
        Map<String, Object> options = Map.of(
            "group.id", ask.get("group").asText(), "isolation.level", "read_committed", "auto.offset.reset", "earliest",
            "max.poll.records", ask.get("batch").asInt(), "reconnect.backoff.max.ms", 200,
            "request.timeout.ms", MILLIS / 4);
        KafkaProducer<byte[], byte[]> producer = null;
        try (KafkaConsumer<byte[], byte[]> consumer = Program.consumer(ask, options)) {
            consumer.subscribe(List.of(source));
            Set<TopicPartition> all = new HashSet<>(places(consumer, source));
            while (System.nanoTime() < deadline) {
                try {
                    if (producer == null) {
                        producer = open(ask, id, 10_000);
                    }
                    ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                    if (records.isEmpty()) {
                        long done = 0;
                        for (OffsetAndMetadata committed : consumer.committed(all).values()) {
                            done += committed == null ? 0 : committed.offset();
                        }
                        if (done >= ask.get("count").asLong()) {
                            return done;
                        }
                        continue;
                    }
                    producer.beginTransaction();
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    for (ConsumerRecord<byte[], byte[]> record : records) {
                        producer.send(new ProducerRecord<>(
                            ask.get("target").asText(), record.partition(), null, record.value()));
                        offsets.put(new TopicPartition(source, record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    producer.commitTransaction();
                } catch (KafkaException problem) {
                    // Whether it was committed is not known, or it was not: the group's offsets tell.
                    if (producer != null) {
                        producer.close(Duration.ZERO);
                        producer = null;
                    }
                    goBack(consumer, deadline);
                }
            }
        } finally {
            if (producer != null) {
                producer.close(Duration.ZERO);
            }
        }
        throw new TimeoutException("not all was transformed in time");
    }

    private static void goBack(KafkaConsumer<byte[], byte[]> consumer, long deadline) {
        while (System.nanoTime() < deadline) {
            try {
                Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
                for (TopicPartition place : consumer.assignment()) {
                    OffsetAndMetadata offset = committed.get(place);
                    consumer.seek(place, offset == null ? 0 : offset.offset());
                }
                return;
            } catch (KafkaException problem) {
                continue;
            }
        }
        throw new TimeoutException("the group's offsets were not told in time");
    }
}
