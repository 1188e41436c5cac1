// A Kafka Streams application, whose state is right also where it reads a record twice (at_least_once).
//
//   Numbers SERVERS NAME STATE_DIR FIRST END GUARANTEE
//
// writes the numbers from FIRST to END to the topic NAME, gathers by their last digit which it has read, for ever
// and by time, each behind a repartition topic, and ends at once, as if killed, when both stores have all numbers
// from 0 to END. STATE_DIR is best a new one: then the stores come from their changelogs.
// The exit code is 1 when it cannot go on, 2 when it has not all after two minutes.

import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;

public class Numbers {
    public static void main(String[] words) throws Exception {
        String servers = words[0], name = words[1], folder = words[2];
        int first = Integer.parseInt(words[3]), end = Integer.parseInt(words[4]);
        long deadline = System.nanoTime() + Duration.ofMinutes(2).toNanos();
        write(servers, name, first, end);

        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("application.id", name);
        settings.put("state.dir", folder);
        settings.put("processing.guarantee", words[5]);
        settings.put("num.stream.threads", "2");
        settings.put("replication.factor", "3");
        settings.put("commit.interval.ms", "200");
        settings.put("repartition.purge.interval.ms", "200");
        settings.put("main.consumer.auto.offset.reset", "earliest");
        settings.put("main.consumer.session.timeout.ms", "3000"); // the run before has not left the group
        settings.put("main.consumer.heartbeat.interval.ms", "500");
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> numbers = builder.stream(name);
        KGroupedStream<String, String> byDigit =
            numbers.map((key, value) -> KeyValue.pair(value.substring(value.length() - 1), value)).groupByKey();
        byDigit.aggregate(() -> "", Numbers::gather, Materialized.as("all")).toStream().to(name + "-out");
        byDigit.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(5), Duration.ofHours(1)))
            .aggregate(() -> "", Numbers::gather, Materialized.as("windows"));

        AtomicReference<Throwable> cause = new AtomicReference<>();
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            cause.set(error);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        int all = 0, windows = 0;
        while (cause.get() == null && System.nanoTime() < deadline && (all < end || windows < end)) {
            Thread.sleep(100);
            try {
                all = gathered(streams, "all").size();
                windows = gathered(streams, "windows").size();
            } catch (InvalidStateStoreException | IllegalStateException notNow) {
            }
        }
        for (Throwable error = cause.get(); error != null; error = error.getCause())
            System.out.println(error);
        System.out.println(all + " " + windows);
        Runtime.getRuntime().halt(cause.get() != null ? 1 : all == end && windows == end ? 0 : 2);
    }

    static void write(String servers, String topic, int first, int end) {
        Map<String, Object> settings = Map.of("bootstrap.servers", servers);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = first; number < end; number++)
                producer.send(new ProducerRecord<>(topic, "" + number, "" + number));
        }
    }

    static String gather(String digit, String number, String gathered) {
        return (gathered + ",").contains("," + number + ",") ? gathered : gathered + "," + number;
    }

    static TreeSet<String> gathered(KafkaStreams streams, String store) {
        TreeSet<String> found = new TreeSet<>();
        if (store.equals("all")) {
            var view = streams.store(StoreQueryParameters.fromNameAndType(
                store, QueryableStoreTypes.<String, String>keyValueStore()));
            try (KeyValueIterator<String, String> rows = view.all()) {
                rows.forEachRemaining(row -> add(found, row.value));
            }
        } else {
            var view = streams.store(StoreQueryParameters.fromNameAndType(
                store, QueryableStoreTypes.<String, String>windowStore()));
            try (var rows = view.all()) {
                rows.forEachRemaining(row -> add(found, row.value));
            }
        }
        return found;
    }

    static void add(TreeSet<String> found, String gathered) {
        for (String number : gathered.substring(1).split(","))
            found.add(number);
    }
}
