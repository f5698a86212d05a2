import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.ParameterizedType;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Random;
import java.util.TreeSet;
import java.util.jar.JarFile;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * Writes every message of kafka-clients at every version, as the official classes serialize it, for the Rust codec to
 * be compared with. What a version contains is taken from the official schemas, not from the JSON descriptors that
 * our codec is generated from.
 *
 * Output, big-endian: name (2-byte length, UTF-8), kind (1), input version (2), input (4-byte length), version (2),
 * expected (4-byte length). "Expected" is what a codec must write at "version" that has read "input": the same bytes,
 * but for kind 2, where the input carries unknown tagged fields, and kind 3, where the versions differ. A
 * length of -1 says that it must refuse: the message has no such form in that version.
 */
public final class Samples {
    private static final String PACKAGE = "org/apache/kafka/common/message/";
    private static final int RANDOM_SAMPLES = 8;
    private static final int KIND_DEFAULT = 0;
    private static final int KIND_RANDOM = 1;
    private static final int KIND_UNKNOWN_TAGS = 2;
    private static final int KIND_OTHER_VERSION = 3;

    private final Random random;
    /** Not null: tagged fields of no known tag are added, decided by this and not by {@link #random}. */
    private final Random unknownTags;
    /** Whether most fields keep their default. */
    private final boolean sparse;

    private Samples(long seed, boolean unknownTags, boolean sparse) {
        this.random = new Random(seed);
        this.unknownTags = unknownTags ? new Random(seed) : null;
        this.sparse = sparse;
    }

    public static void main(String[] args) throws Exception {
        if (args.length != 1) {
            System.err.println("usage: Samples FOLDER");
            System.exit(2);
        }
        Path folder = Paths.get(args[0]);
        Files.createDirectories(folder);
        writeErrors(folder.resolve("errors.tsv"));
        Path partial = folder.resolve("samples.partial");
        int count = 0;
        try (DataOutputStream out = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(partial)))) {
            for (Class<?> type : messageClasses()) {
                count += writeMessage(out, type);
            }
        }
        // a run that failed half way leaves no file that looks whole
        Files.move(partial, folder.resolve("samples.bin"), java.nio.file.StandardCopyOption.REPLACE_EXISTING);
        System.out.println(count + " samples in " + folder.resolve("samples.bin"));
    }

    private static void writeErrors(Path path) throws IOException {
        try (PrintStream out = new PrintStream(Files.newOutputStream(path), false, StandardCharsets.UTF_8)) {
            for (Errors error : Errors.values()) {
                boolean retriable = error.exception() instanceof RetriableException;
                out.print(error.code() + "\t" + error.name() + "\t" + retriable + "\t" + error.message() + "\n");
            }
        }
    }

    /** All messages of the jar: new ones of a later release need no change here. */
    private static List<Class<?>> messageClasses() throws Exception {
        Path jar = Paths.get(Errors.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        TreeSet<String> names = new TreeSet<>();
        try (JarFile file = new JarFile(jar.toFile())) {
            file.stream().map(entry -> entry.getName())
                .filter(name -> name.startsWith(PACKAGE) && name.endsWith(".class") && !name.contains("$"))
                .filter(name -> !name.endsWith("JsonConverter.class"))
                .forEach(name -> names.add(name.substring(0, name.length() - 6).replace('/', '.')));
        }
        List<Class<?>> found = new ArrayList<>();
        for (String name : names) {
            Class<?> type = Class.forName(name);
            if (Message.class.isAssignableFrom(type)) {
                found.add(type);
            }
        }
        return found;
    }

    private static int writeMessage(DataOutputStream out, Class<?> type) throws Exception {
        String name = type.getSimpleName().replaceAll("(Request|Response|Header)Data$", "$1");
        Schema[] schemas = (Schema[]) type.getField("SCHEMAS").get(null);
        int count = 0;
        for (short version = 0; version < schemas.length; version++) {
            Schema schema = schemas[version];
            if (schema == null) {
                continue;
            }
            byte[] plain = serialize((Message) instance(type), version);
            write(out, name, KIND_DEFAULT, version, plain, version, plain);
            count++;
            boolean flexible = isFlexible(schema);
            for (int i = 0; i < RANDOM_SAMPLES; i++) {
                long seed = (name + "/" + version + "/" + i).hashCode();
                byte[] bytes = serialize(new Samples(seed, false, false).message(type, schema), version);
                write(out, name, KIND_RANDOM, version, bytes, version, bytes);
                count++;
                if (flexible) {
                    byte[] input = serialize(new Samples(seed, true, false).message(type, schema), version);
                    write(out, name, KIND_UNKNOWN_TAGS, version, input, version, bytes);
                    count++;
                }
                count += writeOtherVersions(out, name, new Samples(seed, false, true).message(type, schema), version,
                    schemas);
            }
        }
        return count;
    }

    /** One message of {@code from} as every other version has it, or refuses it. */
    private static int writeOtherVersions(DataOutputStream out, String name, Message message, short from,
                                          Schema[] schemas) throws IOException {
        byte[] input = serialize(message, from);
        int count = 0;
        for (short version = 0; version < schemas.length; version++) {
            if (schemas[version] == null || version == from) {
                continue;
            }
            byte[] expected;
            try {
                expected = serialize(message, version);
            } catch (UnsupportedVersionException | NullPointerException e) {
                // a field that must not be left out, or a null where the version has none
                expected = null;
            }
            write(out, name, KIND_OTHER_VERSION, from, input, version, expected);
            count++;
        }
        return count;
    }

    private static void write(DataOutputStream out, String name, int kind, short inputVersion, byte[] input,
                              short version, byte[] expected) throws IOException {
        out.writeUTF(name);
        out.writeByte(kind);
        out.writeShort(inputVersion);
        out.writeInt(input.length);
        out.write(input);
        out.writeShort(version);
        out.writeInt(expected == null ? -1 : expected.length);
        out.write(expected == null ? new byte[0] : expected);
    }

    private static byte[] serialize(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException(message + " is shorter than its size");
        }
        return buffer.array();
    }

    private static Object instance(Class<?> type) throws Exception {
        Constructor<?> constructor = type.getDeclaredConstructor();
        constructor.setAccessible(true);
        return constructor.newInstance();
    }

    private static boolean isFlexible(Schema schema) {
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields) {
                return true;
            }
        }
        return false;
    }

    private Message message(Class<?> type, Schema schema) throws Exception {
        return (Message) struct(type, schema);
    }

    private Object struct(Class<?> type, Schema schema) throws Exception {
        Object struct = instance(type);
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields) {
                for (org.apache.kafka.common.protocol.types.Field tagged
                        : ((TaggedFields) field.def.type).fields().values()) {
                    set(struct, tagged.name, tagged.type);
                }
                addUnknownTags((Message) struct);
            } else {
                set(struct, field.def.name, field.def.type);
            }
        }
        return struct;
    }

    private void addUnknownTags(Message struct) {
        if (unknownTags == null) {
            return;
        }
        int count = unknownTags.nextInt(3);
        for (int i = 0; i < count; i++) {
            byte[] data = new byte[unknownTags.nextInt(200)];
            unknownTags.nextBytes(data);
            struct.unknownTaggedFields().add(new RawTaggedField(100 + 1000 * i, data));
        }
    }

    private void set(Object struct, String snake, Type type) throws Exception {
        Field field = member(struct.getClass(), snake);
        boolean unusableDefault = field.get(struct) == null && !type.isNullable();
        if (sparse && !unusableDefault && random.nextInt(3) > 0) {
            return;
        }
        if (type.isNullable() && random.nextInt(4) == 0) {
            field.set(struct, null);
            return;
        }
        field.set(struct, type.isArray() ? array(field, type) : value(field.getType(), type));
    }

    @SuppressWarnings("unchecked")
    private Object array(Field field, Type type) throws Exception {
        Class<?> holder = field.getType();
        boolean list = holder == List.class;
        Collection<Object> elements = list ? new ArrayList<>() : (Collection<Object>) instance(holder);
        java.lang.reflect.Type generic = list ? field.getGenericType() : holder.getGenericSuperclass();
        Class<?> elementClass = (Class<?>) ((ParameterizedType) generic).getActualTypeArguments()[0];
        Type elementType = type.arrayElementType().orElseThrow();
        // now and then enough that the compact count takes two bytes
        boolean many = !(elementType instanceof Schema) && random.nextInt(20) == 0;
        int count = many ? 150 : random.nextInt(4);
        for (int i = 0; i < count; i++) {
            elements.add(value(elementClass, elementType));
        }
        return elements;
    }

    private Object value(Class<?> holder, Type type) throws Exception {
        if (type instanceof Schema) {
            return struct(holder, (Schema) type);
        }
        if (holder == boolean.class || holder == Boolean.class) {
            return random.nextBoolean();
        } else if (holder == byte.class || holder == Byte.class) {
            return (byte) random.nextInt();
        } else if (holder == short.class || holder == Short.class) {
            return (short) random.nextInt();
        } else if (holder == int.class || holder == Integer.class) {
            return type == Type.UINT16 ? random.nextInt(1 << 16) : random.nextInt();
        } else if (holder == long.class || holder == Long.class) {
            return type == Type.UNSIGNED_INT32 ? random.nextInt() & 0xffffffffL : random.nextLong();
        } else if (holder == double.class || holder == Double.class) {
            return random.nextDouble();
        } else if (holder == String.class) {
            return string();
        } else if (holder == Uuid.class) {
            return new Uuid(random.nextLong(), random.nextLong());
        } else if (holder == byte[].class) {
            return bytes();
        } else if (holder == ByteBuffer.class) {
            return ByteBuffer.wrap(bytes());
        } else if (holder.getSimpleName().equals("BaseRecords")) {
            return MemoryRecords.readableRecords(ByteBuffer.wrap(bytes()));
        }
        throw new IllegalStateException("no value for " + holder + " of type " + type);
    }

    private byte[] bytes() {
        byte[] bytes = new byte[random.nextInt(10) == 0 ? 1000 : random.nextInt(30)];
        random.nextBytes(bytes);
        return bytes;
    }

    /** Of all widths of UTF-8; now and then so long that a compact length takes two bytes. */
    private String string() {
        String[] letters = {"a", "Z", "7", ".", "é", "Ж", "水", "😀"};
        StringBuilder out = new StringBuilder();
        int length = random.nextInt(15) == 0 ? 200 : random.nextInt(8);
        for (int i = 0; i < length; i++) {
            out.append(letters[random.nextInt(letters.length)]);
        }
        return out.toString();
    }

    /** The Java field of a schema's field: "kraft_version" is kRaftVersion. */
    private static Field member(Class<?> type, String snake) throws NoSuchFieldException {
        String plain = snake.replace("_", "");
        for (Field field : type.getDeclaredFields()) {
            if (field.getName().equalsIgnoreCase(plain)) {
                field.setAccessible(true);
                return field;
            }
        }
        throw new NoSuchFieldException(type + " has no " + snake);
    }
}
