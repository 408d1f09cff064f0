import java.util.function.Consumer;

/** The rules that a task has. */
interface Rules {
    void add(Rule rule);

    void forEachMatch(AdImpression event, Consumer<Rule> action);
}
