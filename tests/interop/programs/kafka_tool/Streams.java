// Kafka Streams as a program of its own: counts words, and joins orders with payments of the same customer.
// Arguments are its settings, NAME=VALUE. It ends with 0 on SIGTERM, and with 1 when Streams gives up.

import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.state.KeyValueStore;

public final class Streams {
    // Records may come in any order, so a window stays open: then the pairs are the same whatever comes first.
    private static final JoinWindows NEAR =
        JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(5), Duration.ofDays(1));

    private static Topology topology() {
        var text = Serdes.String();
        var texts = Consumed.with(text, text);
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("lines", texts)
            .flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("words", text, text))
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts").withKeySerde(text))
            .toStream()
            .mapValues(String::valueOf)
            .to("counts", Produced.with(text, text));
        KStream<String, String> payments = builder.stream("payments", texts);
        builder.stream("orders", texts)
            .selectKey((key, order) -> order.substring(0, order.indexOf(' ')))
            .join(payments, (order, payment) -> order + "|" + payment, NEAR,
                StreamJoined.with(text, text, text).withName("near").withStoreName("near"))
            .to("paid", Produced.with(text, text));
        return builder.build();
    }

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        KafkaStreams streams = new KafkaStreams(topology(), settings);
        streams.setUncaughtExceptionHandler(problem -> {
            problem.printStackTrace();
            new Thread(() -> Runtime.getRuntime().halt(1)).start();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            boolean closed = streams.close(Duration.ofSeconds(20));
            Runtime.getRuntime().halt(closed ? 0 : 1);
        }));
        streams.setStateListener((now, before) -> System.out.println(now));
        streams.start();
    }
}
