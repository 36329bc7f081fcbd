import com.starrocks.data.load.stream.StreamLoadDataFormat;
import com.starrocks.data.load.stream.StreamLoadSnapshot;
import com.starrocks.data.load.stream.properties.StreamLoadProperties;
import com.starrocks.data.load.stream.properties.StreamLoadTableProperties;
import com.starrocks.data.load.stream.v2.StreamLoadManagerV2;

/** Loads 20 rows with StarRocks' own client: FE URLs, auto or manual commit, the server version it shall believe in, columns, compression. */
public class Load {
    public static void main(String[] args) {
        boolean auto = args[1].equals("auto");
        StreamLoadTableProperties.Builder table = StreamLoadTableProperties.builder()
                .database("dau").table("daily")
                .streamLoadDataFormat(StreamLoadDataFormat.JSON)
                .columns(args[3]);
        if (!args[4].isEmpty()) {
            table.addProperty("compression", args[4]);
        }
        StreamLoadProperties.Builder properties = StreamLoadProperties.builder()
                .loadUrls(args[0].split(","))
                .jdbcUrl("jdbc:mysql://unused")
                .username("root").password("secret").version(args[2])
                .labelPrefix("sdk-").defaultTableProperties(table.build())
                .scanningFrequency(50).expectDelayTime(200)
                .addHeader("format", "json").addHeader("strip_outer_array", "true").addHeader("strict_mode", "true");
        if (!args[2].startsWith("2.3")) {
            properties.enableTransaction();
        }
        StreamLoadManagerV2 manager = new StreamLoadManagerV2(properties.build(), auto);
        manager.init();
        for (int i = 0; i < 20; i++) {
            manager.write(null, "dau", "daily", "{\"dt\":\"2024-03-01\",\"platform\":\"p" + i % 2
                    + "\",\"rollcall_source\":\"a\",\"b_uv\":\"AQUAAAA=\",\"pv\":" + i + ",\"rollcall_next_offset\":" + i + "}");
        }
        manager.flush();
        if (!auto) {
            StreamLoadSnapshot snapshot = manager.snapshot();
            if (!manager.prepare(snapshot) || !manager.commit(snapshot)) {
                throw new IllegalStateException("prepare or commit failed");
            }
        }
        Throwable failure = manager.getException();
        manager.close();
        if (failure != null) {
            failure.printStackTrace();
        }
        System.exit(failure == null ? 0 : 1);
    }
}
