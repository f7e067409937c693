"""Makes ONNX files that are meant to hurt. Each docstring is a promise.

A maker takes the bytes of a good model and gives those of a hostile one.
"""

import onnx

SECRET = "secret.bin"  # a file beside that no model may read
EXTERNAL, LOCATION = 13, 14  # fields of a tensor


def varint(number, extra=0):
    """A number of a protocol buffer; `extra` bytes more than it needs."""
    parts = []
    while True:
        parts.append(number & 127)
        number >>= 7
        if not number:
            break
    parts += [0] * extra
    return bytes([*(part | 128 for part in parts[:-1]), parts[-1]])


def field(number, payload, tag=varint):
    return tag(number << 3 | 2) + varint(len(payload)) + payload


def entry(key, value):
    return field(1, key.encode()) + field(2, value.encode())


def with_tensor(payload, location, tag):
    """The model with one more initializer, whose 8 floats are in another file; `tag` writes the telling tags."""
    tensor = varint(1 << 3) + varint(8) + varint(2 << 3) + varint(1) + field(8, b"stolen")
    for pair in (entry("location", location), entry("offset", "0"), entry("length", "32")):
        tensor += field(EXTERNAL, pair, tag)
    tensor += tag(LOCATION << 3) + varint(1)
    node = field(1, b"stolen") + field(2, b"loot") + field(4, b"Identity")
    shape = field(2, field(1, varint(1 << 3) + varint(8)))
    output = field(1, b"loot") + field(2, field(1, varint(1 << 3) + varint(1) + shape))
    model = onnx.load_from_string(payload)
    graph = model.graph.SerializeToString() + field(1, node) + field(5, tensor) + field(12, output)
    model.ClearField("graph")
    return model.SerializeToString() + field(7, graph)


def named(payload):
    """A model that names another file for its weights is refused."""
    return with_tensor(payload, SECRET, varint)


def in_constant(payload):
    """A constant whose values are in another file is refused."""
    model = onnx.load_from_string(payload)
    tensor = onnx.TensorProto(dims=[4], data_type=onnx.TensorProto.FLOAT, data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=SECRET)
    model.graph.node.append(onnx.helper.make_node("Constant", [], ["loot"], value=tensor))
    model.graph.output.append(onnx.helper.make_tensor_value_info("loot", onnx.TensorProto.FLOAT, [4]))
    return model.SerializeToString()


def parent(payload):
    """A model that names a file in the folder above is refused."""
    return with_tensor(payload, f"../{SECRET}", varint)


def long_tag(payload):
    """Other files behind a field number that is written longer than needed are refused."""
    return with_tensor(payload, SECRET, lambda tag: varint(tag, extra=2))


def high_bits(payload):
    """A field number with bits that the runtime drops is refused."""
    return with_tensor(payload, SECRET, lambda tag: varint(tag | 1 << 32))


def address(payload):
    """A model that names an address in memory for its weights is refused."""
    return with_tensor(payload, "*/_ORT_MEM_ADDR_/*", varint)


def other_format(payload):
    """A file whose first bytes say it has the runtime's own format is not read as that."""
    return field(2, b"xxORTM") + payload  # the mark is looked for at byte 4


def with_nodes(payload, nodes, **constants):
    """The model with more operators, whose last output is asked for; constants are whole numbers, or floats."""
    model = onnx.load_from_string(payload)
    for name, values in constants.items():
        kind = onnx.TensorProto.FLOAT if isinstance(values[0], float) else onnx.TensorProto.INT64
        model.graph.initializer.append(onnx.helper.make_tensor(name, kind, [len(values)], values))
    model.graph.node.extend(onnx.helper.make_node(kind, inputs, [output]) for kind, inputs, output in nodes)
    model.graph.output.append(onnx.helper.make_tensor_value_info(nodes[-1][2], onnx.TensorProto.FLOAT, None))
    return model.SerializeToString()


def zeros(payload):
    """A graph that makes forty gigabytes of zeros is refused."""
    return with_nodes(payload, [("ConstantOfShape", ["size"], "loot")], size=[10**10])


def expanded(payload):
    """A graph that expands one number to gigabytes is refused."""
    return with_nodes(payload, [("Expand", ["one", "size"], "loot")], one=[1.0], size=[50_000, 50_000])


def tiled(payload):
    """A graph that repeats one number to gigabytes is refused."""
    return with_nodes(payload, [("Tile", ["one", "times"], "loot")], one=[1.0], times=[3 * 10**9])


def outer(payload):
    """A graph that multiplies two long vectors into a matrix of gigabytes is refused."""
    nodes = [
        ("ConstantOfShape", ["tall"], "a"),
        ("ConstantOfShape", ["wide"], "b"),
        ("MatMul", ["a", "b"], "loot"),
    ]
    return with_nodes(payload, nodes, tall=[100_000, 1], wide=[1, 100_000])


def by_the_event(payload):
    """A graph that asks for gigabytes only when it sees certain events is refused when it does."""
    nodes = [("ReduceSum", ["jet"], "sum"), ("Mul", ["sum", "much"], "more"), ("Abs", ["more"], "size")]
    nodes += [("Cast", ["size"], "whole"), ("Reshape", ["whole", "one"], "shape")]
    nodes += [("ConstantOfShape", ["shape"], "loot")]
    model = onnx.load_from_string(with_nodes(payload, nodes, much=[1e6], one=[1]))
    (cast,) = [node for node in model.graph.node if "whole" in node.output]
    cast.attribute.append(onnx.helper.make_attribute("to", onnx.TensorProto.INT64))
    return model.SerializeToString()


def long_chain(payload, products=1000, size=3000):
    """A graph of a thousand products of large matrices is stopped."""
    nodes = [("ConstantOfShape", ["size"], "m0")]
    nodes += [("MatMul", [f"m{k}", "m0"], f"m{k + 1}") for k in range(products)]
    return with_nodes(payload, [*nodes, ("ReduceSum", [f"m{products}"], "loot")], size=[size, size])


def many_axes(payload):
    """A graph whose arrays have 2^40 axes, which the runtime writes down when it opens it, is refused."""
    nodes = [("ConstantOfShape", ["count"], "shape"), ("Expand", ["one", "shape"], "loot")]
    model = onnx.load_from_string(with_nodes(payload, nodes, one=[1.0], count=[2**40]))
    (node,) = [node for node in model.graph.node if "shape" in node.output]
    ones = onnx.helper.make_tensor("value", onnx.TensorProto.INT64, [1], [1])
    node.attribute.append(onnx.helper.make_attribute("value", ones))
    return model.SerializeToString()


def empty_tensor(payload):
    """A tensor that declares gigabytes and brings no values is refused."""
    model = onnx.load_from_string(payload)
    model.graph.initializer.add(name="loot", data_type=onnx.TensorProto.FLOAT, dims=[4 * 10**8])
    model.graph.output.append(onnx.helper.make_tensor_value_info("loot", onnx.TensorProto.FLOAT, None))
    return model.SerializeToString()


LEAKS = (named, in_constant, parent, long_tag, high_bits, address)
LARGE = (zeros, expanded, tiled, outer, many_axes, empty_tensor)
