// Writes topic_configs.tsv, broker_names.tsv and group_configs.tsv out of Kafka's own classes: names, types, defaults,
// valid values, importance, synonyms, and how a broker config is updated; no documentation text.
//
//   mvn dependency:copy-dependencies -DoutputDirectory=jars     with org.apache.kafka:kafka_2.13:4.3.1 in a pom.xml
//   java -cp 'jars/*' ConfigTables.java crates/kafka/src/config

import java.io.PrintWriter;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

public class ConfigTables {
    public static void main(String[] args) throws Exception {
        Path into = Path.of(args[0]);
        try (PrintWriter out = new PrintWriter(into.resolve("topic_configs.tsv").toFile())) {
            out.println("# The topic configs of Kafka " + AppInfoParser.getVersion() + ", written by ConfigTables.java.");
            out.println("# name\ttype\tdefault\tvalid values\timportance\tinternal\tbroker synonyms (with their unit), by precedence");
            for (var e : new TreeMap<>(LogConfig.configKeys()).entrySet()) {
                String synonyms = ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(e.getKey(), java.util.List.of())
                    .stream().map(s -> s.name() + unit(s)).collect(Collectors.joining(","));
                out.println(row(e.getValue()) + "\t" + synonyms);
            }
        }
        Map<String, ConfigDef.ConfigKey> broker = new TreeMap<>(kafka.server.KafkaConfig.configDef().configKeys());
        DynamicConfig.Broker.names().forEach(n -> broker.putIfAbsent(n, null));
        try (PrintWriter out = new PrintWriter(into.resolve("broker_names.tsv").toFile())) {
            out.println("# The broker configs of Kafka " + AppInfoParser.getVersion() + ", written by ConfigTables.java.");
            out.println("# name\ttype\tdefault\tvalid values\timportance\tinternal\tupdate mode");
            Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
            for (var e : broker.entrySet()) {
                String row = e.getValue() == null ? e.getKey() + "\tDYNAMIC\t\t\t\tfalse" : row(e.getValue());
                out.println(row + "\t" + modes.getOrDefault(e.getKey(), "read-only"));
            }
        }
        try (PrintWriter out = new PrintWriter(into.resolve("group_configs.tsv").toFile())) {
            out.println("# The group configs of Kafka " + AppInfoParser.getVersion() + ", written by ConfigTables.java.");
            out.println("# name\ttype\tdefault\tvalid values\timportance\tinternal\tbroker synonym");
            for (var e : new TreeMap<>(GroupConfig.CONFIG_DEF.configKeys()).entrySet()) {
                out.println(row(e.getValue()) + "\t" + GroupConfig.brokerSynonym(e.getKey()).orElse(""));
            }
        }
    }

    private static String unit(org.apache.kafka.server.config.ConfigSynonym s) {
        String one = s.converter().apply("1");
        return one.equals("1") ? "" : "*" + one;
    }

    private static String row(ConfigDef.ConfigKey key) {
        String value = !key.hasDefault() ? "(required)"
            : key.defaultValue == null ? "(null)" : ConfigDef.convertToString(key.defaultValue, key.type);
        String valid = key.validator == null ? "" : key.validator.toString();
        return String.join("\t", key.name, key.type.name(), value, valid.replaceAll("\\s+", " "), key.importance.name(),
            String.valueOf(key.internalConfig));
    }
}
