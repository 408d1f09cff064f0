import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;

/** Conditions on fields, all of which a matching event meets; see {@code bench/match_rules.py}. */
final class Rule {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String id;
    private final List<Condition> conditions;

    private Rule(String id, List<Condition> conditions) {
        this.id = id;
        this.conditions = conditions;
    }

    static Rule parsed(byte[] json) throws IOException {
        JsonNode rule = JSON.readTree(json);
        List<Condition> conditions = new ArrayList<>();
        for (JsonNode condition : rule.get("conditions")) {
            conditions.add(Condition.of(condition));
        }
        return new Rule(rule.get("id").asText(), conditions);
    }

    String id() {
        return id;
    }

    boolean matches(AdImpression event) {
        for (Condition condition : conditions) {
            if (!condition.isMet(event)) {
                return false;
            }
        }
        return true;
    }

    /** The first condition that names all values that a field may have. */
    Condition selective() {
        return conditions.stream().filter(Condition::isEquality).findFirst().orElseThrow();
    }

    record Condition(String field, String operator, Set<Object> values) {
        static Condition of(JsonNode json) {
            Set<Object> values = new HashSet<>();
            for (JsonNode value : json.get("values")) {
                values.add(value.isNumber() ? (Object) value.asDouble()
                        : value.isBoolean() ? (Object) value.asBoolean() : value.asText());
            }
            return new Condition(json.get("field").asText(), json.get("operator").asText(), values);
        }

        boolean isEquality() {
            return operator.equals("in") || operator.equals("=");
        }

        boolean isMet(AdImpression event) {
            Object value = event.value(field);
            return switch (operator) {
                case "in", "=" -> values.contains(value);
                case "!=" -> !values.contains(value);
                case ">=" -> compared(value) >= 0;
                case ">" -> compared(value) > 0;
                case "<=" -> compared(value) <= 0;
                case "<" -> compared(value) < 0;
                default -> throw new IllegalArgumentException(operator);
            };
        }

        private int compared(Object value) {
            Object limit = values.iterator().next();
            return value instanceof Double number
                    ? number.compareTo((Double) limit)
                    : value.toString().compareTo(limit.toString());
        }
    }
}
