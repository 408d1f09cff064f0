import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/** Rules by the values that a field of a matching event may have: an event looks up its own. */
final class RuleIndex implements Rules {
    private final Map<String, Map<Object, List<Rule>>> byField = new HashMap<>();

    @Override
    public void add(Rule rule) {
        Rule.Condition selective = rule.selective();
        Map<Object, List<Rule>> byValue =
                byField.computeIfAbsent(selective.field(), field -> new HashMap<>());
        for (Object value : selective.values()) {
            byValue.computeIfAbsent(value, unseen -> new ArrayList<>(1)).add(rule);
        }
    }

    @Override
    public void forEachMatch(AdImpression event, Consumer<Rule> action) {
        byField.forEach((field, byValue) -> {
            for (Rule rule : byValue.getOrDefault(event.value(field), List.of())) {
                if (rule.matches(event)) {
                    action.accept(rule);
                }
            }
        });
    }
}
