import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.flink.api.common.state.BroadcastState;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.functions.co.BroadcastProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Matches events with the rules of the broadcast state. The rules to be tested are all of them, or
 * those that an index beside the state selects. Events that come before all rules have come wait in
 * the operator's state.
 */
final class MatchRules extends BroadcastProcessFunction<byte[], byte[], byte[]>
        implements CheckpointedFunction {
    static final MapStateDescriptor<String, byte[]> RULES = new MapStateDescriptor<>(
            "rules", Types.STRING, PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO);
    private static final ListStateDescriptor<byte[]> EARLY = new ListStateDescriptor<>(
            "early", PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO);

    private final int expectedRules;
    private final boolean isIndexed;
    private transient Rules rules;
    private transient int count;
    private transient ListState<byte[]> early;

    MatchRules(int expectedRules, boolean isIndexed) {
        this.expectedRules = expectedRules;
        this.isIndexed = isIndexed;
    }

    @Override
    public void initializeState(FunctionInitializationContext context) throws Exception {
        rules = isIndexed ? new RuleIndex() : new RuleList();
        early = context.getOperatorStateStore().getListState(EARLY);
        BroadcastState<String, byte[]> state =
                context.getOperatorStateStore().getBroadcastState(RULES);
        for (Map.Entry<String, byte[]> rule : state.entries()) {
            add(Rule.parsed(rule.getValue()));
        }
    }

    @Override
    public void snapshotState(FunctionSnapshotContext context) {
        // Flink takes the state itself; the rules are made again from it.
    }

    @Override
    public void processBroadcastElement(byte[] json, Context context, Collector<byte[]> out)
            throws Exception {
        Rule rule = Rule.parsed(json);
        context.getBroadcastState(RULES).put(rule.id(), json);
        add(rule);
        if (count == expectedRules) {
            for (byte[] event : early.get()) {
                match(event, out);
            }
            early.clear();
        }
    }

    @Override
    public void processElement(byte[] event, ReadOnlyContext context, Collector<byte[]> out)
            throws Exception {
        if (count < expectedRules) {
            early.add(event);
        } else {
            match(event, out);
        }
    }

    private void add(Rule rule) {
        rules.add(rule);
        count++;
    }

    private void match(byte[] json, Collector<byte[]> out) throws IOException {
        AdImpression event = AdImpression.parsed(json);
        rules.forEachMatch(event, rule -> out.collect(record(rule, event)));
    }

    /** Ids need no escaping. */
    private static byte[] record(Rule rule, AdImpression event) {
        String json = "{\"query\":\"" + rule.id() + "\",\"event_id\":\"" + event.eventId()
                + "\",\"event_time\":" + event.eventTime() + "}";
        return json.getBytes(StandardCharsets.UTF_8);
    }
}
