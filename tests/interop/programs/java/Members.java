// Group members of the Java client: each a thread with a consumer that commits what it has shown.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.WakeupException;

final class Members {
    private final Map<String, Member> joined = new HashMap<>();

    Object join(JsonNode ask) {
        Member member = new Member(ask);
        joined.put(member.name, member);
        member.start();
        return null;
    }

    Object seek(JsonNode ask) {
        Member member = joined.get(ask.get("member").asText());
        TopicPartition place = new TopicPartition(ask.get("topic").asText(), ask.get("partition").asInt());
        long offset = ask.get("offset").asLong();
        member.errands.add(() -> member.consumer.seek(place, offset));
        member.consumer.wakeup();
        return null;
    }

    Object leave(JsonNode ask) throws InterruptedException {
        Member member = joined.remove(ask.get("member").asText());
        member.leaving = true;
        member.consumer.wakeup();
        member.join();
        return null;
    }

    private static final class Member extends Thread implements ConsumerRebalanceListener {
        private final String name;
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final Queue<Runnable> errands = new ConcurrentLinkedQueue<>();
        private volatile boolean leaving;

        Member(JsonNode ask) {
            name = ask.get("member").asText();
            setDaemon(true);
            int session = ask.get("session_ms").asInt();
            Map<String, Object> settings = new HashMap<>();
            settings.put("group.id", ask.get("group").asText());
            settings.put("auto.offset.reset", "earliest");
            settings.put("metadata.max.age.ms", ask.get("metadata_ms").asInt());
            settings.put("fetch.max.wait.ms", 100);
            settings.put("reconnect.backoff.max.ms", 200);
            boolean onServer = ask.get("protocol").asText().equals("consumer");
            if (onServer) {
                settings.put("group.protocol", "consumer");
            } else {
                settings.put("session.timeout.ms", session);
                settings.put("heartbeat.interval.ms", ask.get("heartbeat_ms").asInt());
                settings.put("partition.assignment.strategy", ask.get("cooperative").asBoolean()
                    ? "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
                    : "org.apache.kafka.clients.consumer.RangeAssignor");
            }
            if (!ask.get("instance").isNull()) {
                settings.put("group.instance.id", ask.get("instance").asText());
            }
            consumer = Program.consumer(ask, settings);
            if (ask.get("pattern").isNull()) {
                List<String> topics = new ArrayList<>();
                ask.get("topics").forEach(topic -> topics.add(topic.asText()));
                consumer.subscribe(topics, this);
            } else if (onServer) {
                consumer.subscribe(new SubscriptionPattern(ask.get("pattern").asText()), this);
            } else {
                consumer.subscribe(Pattern.compile(ask.get("pattern").asText()), this);
            }
        }

        @Override
        public void run() {
            try (consumer) {
                while (!leaving) {
                    step();
                }
            } catch (Exception problem) {
                Program.print(tell("failed").put("text", Program.trace(problem)));
            }
        }

        private void step() {
            try {
                for (Runnable errand = errands.poll(); errand != null; errand = errands.poll()) {
                    errand.run();
                }
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                if (!records.isEmpty()) {
                    show(records);
                    commit();
                }
            } catch (WakeupException woken) {
                return;
            } catch (CommitFailedException refused) {
                // Its epoch had just moved on; whoever reads these records again repeats the commit.
                Program.print(tell("uncommitted").put("text", String.valueOf(refused.getMessage())));
            } catch (RebalanceInProgressException | RetriableException again) {
                return;
            }
        }

        private void commit() {
            try {
                consumer.commitSync();
            } catch (WakeupException woken) {
                consumer.commitSync();
            }
        }

        private void show(ConsumerRecords<byte[], byte[]> records) {
            ObjectNode event = tell("records");
            ArrayNode list = event.putArray("records");
            records.forEach(record -> list.addArray().add(record.topic()).add(record.partition()).add(record.offset())
                .add(new String(record.value(), StandardCharsets.UTF_8)));
            Program.print(event);
        }

        private ObjectNode tell(String event) {
            return Program.JSON.createObjectNode().put("event", event).put("member", name)
                .put("at", ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now()));
        }

        private void moved(String event, Collection<TopicPartition> partitions) {
            ObjectNode line = tell(event);
            ArrayNode list = line.putArray("partitions");
            partitions.forEach(place -> list.addArray().add(place.topic()).add(place.partition()));
            Program.print(line);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            moved("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            moved("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            moved("revoked", partitions);
        }
    }
}
