import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * Prints RocketMQ's verdict in front of each case of a file (see tests/it/verdicts.rs).
 *
 * With org.apache.rocketmq:rocketmq-filter:5.5.0 and its dependencies in CLASSPATH:
 * java -Dfile.encoding=UTF-8 Verdicts.java CASES > rocketmq-5.5.0.tsv
 */
class Verdicts {
    public static void main(String[] args) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String line : Files.readString(Path.of(args[0])).split("\n")) {
            String[] fields = line.split("\t", -1);
            Map<String, Object> properties = new HashMap<>();
            for (int i = 1; i < fields.length; i++) {
                String[] pair = fields[i].split("=", 2);
                properties.put(pair[0], unescaped(pair[1]));
            }
            out.append(verdict(unescaped(fields[0]), properties)).append('\t').append(line).append('\n');
        }
        System.out.write(out.toString().getBytes("UTF-8"));
        System.out.flush();
    }

    static String verdict(String selector, Map<String, Object> properties) {
        Expression expression;
        try {
            expression = SelectorParser.parse(selector);
        } catch (MQFilterException e) {
            return "R";
        }
        try {
            Object result = expression.evaluate(new EvaluationContext() {
                @Override
                public Object get(String name) {
                    return properties.get(name);
                }

                @Override
                public Map<String, Object> keyValues() {
                    return properties;
                }
            });
            return result == null ? "U" : (Boolean) result ? "T" : "F";
        } catch (Throwable e) {
            return "E";
        }
    }

    static String unescaped(String text) {
        StringBuilder out = new StringBuilder();
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '\\') {
                c = text.charAt(++i);
                c = c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c;
            }
            out.append(c);
        }
        return out.toString();
    }
}
