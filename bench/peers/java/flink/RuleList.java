import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/** Rules in their order: an event is tested with each, as the broadcast state pattern shows it. */
final class RuleList implements Rules {
    private final List<Rule> rules = new ArrayList<>();

    @Override
    public void add(Rule rule) {
        rules.add(rule);
    }

    @Override
    public void forEachMatch(AdImpression event, Consumer<Rule> action) {
        for (Rule rule : rules) {
            if (rule.matches(event)) {
                action.accept(rule);
            }
        }
    }
}
