// The Java client as a program: one JSON object per line in, one per line out (tests/interop/clients/process.py).

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.internals.AppInfoParser;

public final class Program {
    static final ObjectMapper JSON = new ObjectMapper();
    private static final int MILLIS = 20_000;
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private final Map<String, Admin> admins = new HashMap<>();
    private final Map<String, Reader> readers = new HashMap<>();
    private final Members members = new Members();
    private final Transactions transactions = new Transactions();

    private record Reader(KafkaConsumer<byte[], byte[]> consumer, String topic, List<ArrayNode> waiting) {}

    public static void main(String[] arguments) throws Exception {
        Program program = new Program();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            print(program.answer(JSON.readTree(line)));
        }
        Runtime.getRuntime().halt(0);
    }

    static void print(ObjectNode line) {
        synchronized (OUT) {
            OUT.println(line.toString());
            OUT.flush();
        }
    }

    private ObjectNode answer(JsonNode ask) {
        ObjectNode line = JSON.createObjectNode();
        try {
            line.set("answer", JSON.valueToTree(run(ask.get("op").asText(), ask)));
        } catch (Throwable problem) {
            line.removeAll();
            Throwable cause = problem;
            while (cause instanceof ExecutionException && cause.getCause() != null) {
                cause = cause.getCause();
            }
            if (cause instanceof KafkaException) {
                line.putArray("refused").add(Errors.forException(cause).code()).add(String.valueOf(cause));
            } else {
                line.put("broken", trace(cause));
            }
        }
        return line;
    }

    static String trace(Throwable problem) {
        StringWriter text = new StringWriter();
        problem.printStackTrace(new PrintWriter(text));
        return text.toString();
    }

    private Object run(String op, JsonNode ask) throws Exception {
        switch (op) {
            case "version": return AppInfoParser.getVersion();
            case "produce": return produce(ask);
            case "fates": return fates(ask);
            case "read": return read(ask);
            case "reader.open": return openReader(ask);
            case "reader.take": return take(ask);
            case "reader.seek": return seek(ask);
            case "reader.close": return closeReader(ask);
            case "partitions": return partitions(ask);
            case "bounds": return bounds(ask);
            case "offset_for_time": return offsetForTime(ask);
            case "create_topic": return createTopic(ask);
            case "delete_topic": return admin(ask).deleteTopics(List.of(topic(ask))).all().get();
            case "add_partitions": return addPartitions(ask);
            case "topic_configs": return topicConfigs(ask);
            case "alter_configs": return alterConfigs(ask);
            case "delete_records": return deleteRecords(ask);
            case "commit": return commit(ask);
            case "committed": return committed(ask);
            case "txn.open": return transactions.open(ask);
            case "txn.send": return transactions.send(ask);
            case "txn.end": return transactions.end(ask);
            case "txn.close": return transactions.close(ask);
            case "txn.read": return transactions.read(ask);
            case "txn.transform": return transactions.transform(ask);
            case "txn.follow": return transactions.follow(ask);
            case "txn.poll": return transactions.poll(ask);
            case "txn.rewind": return transactions.rewind(ask);
            case "txn.offsets": return transactions.offsets(ask);
            case "member.join": return members.join(ask);
            case "member.seek": return members.seek(ask);
            case "member.leave": return members.leave(ask);
            default: throw new IllegalArgumentException("no such op: " + op);
        }
    }

    private static String topic(JsonNode ask) {
        return ask.get("topic").asText();
    }

    private static TopicPartition place(JsonNode ask) {
        return new TopicPartition(topic(ask), ask.get("partition").asInt());
    }

    private static byte[] bytes(JsonNode text) {
        return text == null || text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    private Admin admin(JsonNode ask) {
        return admins.computeIfAbsent(ask.get("bootstrap").asText(), bootstrap -> {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("request.timeout.ms", MILLIS);
            settings.put("default.api.timeout.ms", MILLIS);
            return Admin.create(settings);
        });
    }

    static KafkaConsumer<byte[], byte[]> consumer(JsonNode ask, Map<String, ?> options) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", ask.get("bootstrap").asText());
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "none");
        settings.put("default.api.timeout.ms", MILLIS);
        settings.put("allow.auto.create.topics", false);
        settings.putAll(options);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private List<Future<RecordMetadata>> send(JsonNode ask) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", ask.get("bootstrap").asText());
        settings.put("acks", ask.get("acks").asText());
        settings.put("compression.type", ask.get("codec").asText());
        settings.put("enable.idempotence", ask.get("idempotent").asBoolean());
        settings.put("max.request.size", ask.get("size_max").asInt());
        settings.put("linger.ms", ask.has("linger") ? ask.get("linger").asInt() : 5);
        int millis = ask.has("millis") ? ask.get("millis").asInt() : MILLIS;
        settings.put("request.timeout.ms", millis / 2);
        settings.put("delivery.timeout.ms", millis);
        settings.put("max.block.ms", millis);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode record : ask.get("records")) {
                Integer partition = record.get("partition").isNull() ? null : record.get("partition").asInt();
                Long timestamp = record.get("timestamp").isNull() ? null : record.get("timestamp").asLong();
                List<Header> headers = new ArrayList<>();
                for (JsonNode header : record.get("headers")) {
                    headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
                }
                sent.add(producer.send(new ProducerRecord<>(
                    topic(ask), partition, timestamp, bytes(record.get("key")), bytes(record.get("value")), headers)));
            }
            producer.flush();
        }
        return sent;
    }

    // What became of each record: null, or the class and the message of what went wrong.
    private ArrayNode fates(JsonNode ask) throws Exception {
        ArrayNode fates = JSON.createArrayNode();
        for (Future<RecordMetadata> future : send(ask)) {
            try {
                future.get();
                fates.addNull();
            } catch (ExecutionException failure) {
                Throwable why = failure.getCause();
                fates.addArray().add(why.getClass().getSimpleName()).add(why.getMessage());
            }
        }
        return fates;
    }

    private List<Long> produce(JsonNode ask) throws Exception {
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> future : send(ask)) {
            if (future.get().hasOffset()) {
                offsets.add(future.get().offset());
            }
        }
        return offsets;
    }

    private static ArrayNode got(ConsumerRecord<byte[], byte[]> record) {
        ArrayNode line = JSON.createArrayNode();
        line.add(record.partition()).add(record.offset()).add(record.timestamp());
        line.add(text(record.key())).add(text(record.value()));
        ArrayNode headers = line.addArray();
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
        return line.add(record.timestampType() == TimestampType.LOG_APPEND_TIME);
    }

    private List<ArrayNode> read(JsonNode ask) {
        List<TopicPartition> places = new ArrayList<>();
        ask.get("partitions").forEach(number -> places.add(new TopicPartition(topic(ask), number.asInt())));
        long start = ask.get("start").asLong();
        List<ArrayNode> records = new ArrayList<>();
        try (var consumer = consumer(ask, Map.of(
                "max.partition.fetch.bytes", ask.get("size_max").asInt(), "fetch.max.wait.ms", 100))) {
            consumer.assign(places);
            Map<TopicPartition, Long> ends = consumer.endOffsets(places);
            if (start == -2) {
                consumer.seekToBeginning(places);
            } else {
                places.forEach(place -> consumer.seek(place, start));
            }
            Set<TopicPartition> left = new HashSet<>(places);
            long deadline = System.currentTimeMillis() + MILLIS;
            left.removeIf(place -> consumer.position(place) >= ends.get(place));
            while (!left.isEmpty()) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException(left.size() + " partitions not read to their end");
                }
                consumer.poll(Duration.ofMillis(100)).forEach(record -> records.add(got(record)));
                left.removeIf(place -> consumer.position(place) >= ends.get(place));
            }
        }
        return records;
    }

    private Object openReader(JsonNode ask) {
        int wait = ask.get("wait_ms").asInt();
        String rack = ask.has("rack") ? ask.get("rack").asText() : "";
        var consumer = consumer(
            ask, Map.of("fetch.max.wait.ms", wait, "request.timeout.ms", wait + 10_000, "client.rack", rack));
        TopicPartition place = place(ask);
        consumer.assign(List.of(place));
        if (ask.get("start").asLong() == -1) {
            consumer.seekToEnd(List.of(place));
            consumer.position(place);
        } else {
            consumer.seek(place, ask.get("start").asLong());
        }
        readers.put(ask.get("reader").asText(), new Reader(consumer, topic(ask), new ArrayList<>()));
        return null;
    }

    private List<ArrayNode> take(JsonNode ask) {
        Reader reader = readers.get(ask.get("reader").asText());
        int count = ask.get("count").asInt();
        long deadline = System.currentTimeMillis() + (long) (ask.get("seconds").asDouble() * 1000);
        while (reader.waiting.size() < count && System.currentTimeMillis() < deadline) {
            Duration left = Duration.ofMillis(Math.max(1, deadline - System.currentTimeMillis()));
            reader.consumer.poll(left).forEach(record -> reader.waiting.add(got(record)));
        }
        List<ArrayNode> first = reader.waiting.subList(0, Math.min(count, reader.waiting.size()));
        List<ArrayNode> taken = new ArrayList<>(first);
        first.clear();
        return taken;
    }

    private Object seek(JsonNode ask) {
        Reader reader = readers.get(ask.get("reader").asText());
        reader.waiting.clear();
        reader.consumer.seek(
            new TopicPartition(reader.topic, ask.get("partition").asInt()), ask.get("offset").asLong());
        return null;
    }

    private Object closeReader(JsonNode ask) {
        // A fetch may be parked; to wait for its end is not what the case is about.
        readers.remove(ask.get("reader").asText()).consumer.close(CloseOptions.timeout(Duration.ZERO));
        return null;
    }

    private int partitions(JsonNode ask) throws Exception {
        if (!admin(ask).listTopics().names().get().contains(topic(ask))) {
            return 0;
        }
        return admin(ask).describeTopics(List.of(topic(ask))).allTopicNames().get().get(topic(ask)).partitions().size();
    }

    private List<Long> bounds(JsonNode ask) throws Exception {
        TopicPartition place = place(ask);
        return List.of(
            admin(ask).listOffsets(Map.of(place, OffsetSpec.earliest())).partitionResult(place).get().offset(),
            admin(ask).listOffsets(Map.of(place, OffsetSpec.latest())).partitionResult(place).get().offset());
    }

    private Long offsetForTime(JsonNode ask) {
        TopicPartition place = place(ask);
        try (var consumer = consumer(ask, Map.of())) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(place, ask.get("timestamp").asLong())).get(place);
            return found == null ? null : (Long) found.offset();
        }
    }

    private Object createTopic(JsonNode ask) throws Exception {
        NewTopic wanted = new NewTopic(topic(ask), ask.get("partitions").asInt(), (short) ask.get("replicas").asInt());
        wanted.configs(JSON.convertValue(ask.get("configs"), JSON.getTypeFactory()
            .constructMapType(HashMap.class, String.class, String.class)));
        admin(ask).createTopics(List.of(wanted)).all().get();
        return null;
    }

    private Object addPartitions(JsonNode ask) throws Exception {
        NewPartitions total = NewPartitions.increaseTo(ask.get("total").asInt());
        admin(ask).createPartitions(Map.of(topic(ask), total)).all().get();
        return null;
    }

    private Map<String, String> topicConfigs(JsonNode ask) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic(ask));
        Map<String, String> values = new HashMap<>();
        for (ConfigEntry entry : admin(ask).describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            values.put(entry.name(), entry.value());
        }
        return values;
    }

    private Object alterConfigs(JsonNode ask) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        ask.get("configs").properties().forEach(entry -> changes.add(new AlterConfigOp(
            new ConfigEntry(entry.getKey(), entry.getValue().asText()), AlterConfigOp.OpType.SET)));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic(ask));
        admin(ask).incrementalAlterConfigs(Map.of(resource, changes)).all().get();
        return null;
    }

    private long deleteRecords(JsonNode ask) throws Exception {
        TopicPartition place = place(ask);
        RecordsToDelete wanted = RecordsToDelete.beforeOffset(ask.get("before").asLong());
        return admin(ask).deleteRecords(Map.of(place, wanted)).lowWatermarks().get(place).get().lowWatermark();
    }

    private Object commit(JsonNode ask) {
        TopicPartition place = place(ask);
        try (var consumer = consumer(ask, Map.of("group.id", ask.get("group").asText()))) {
            consumer.assign(List.of(place));
            consumer.commitSync(Map.of(place, new OffsetAndMetadata(ask.get("offset").asLong(), Optional.empty(), "")));
        }
        return null;
    }

    private Long committed(JsonNode ask) {
        TopicPartition place = place(ask);
        try (var consumer = consumer(ask, Map.of("group.id", ask.get("group").asText()))) {
            OffsetAndMetadata found = consumer.committed(Set.of(place)).get(place);
            return found == null ? null : (Long) found.offset();
        }
    }
}
