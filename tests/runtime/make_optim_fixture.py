# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
"""What torch.optim makes of a few parameters, as a C table: prints test_optim_torch.inc.

Parameters and gradients span many magnitudes, with zeros among them; torch runs its single-tensor
code on the CPU in f32, without the fused multiply-adds its vector kernels would take, so that every
bit is that of the formula as written.  Usage: make_optim_fixture.py > test_optim_torch.inc (needs
torch).
"""
import os

os.environ["ATEN_CPU_CAPABILITY"] = "default"  # torch reads it once, when it is loaded
import torch  # noqa: E402

NUMEL = 24
STEPS = 20
CHECKPOINTS = (1, STEPS)
ADAMW = ("exp_avg", "exp_avg_sq")
SGD = ("momentum_buffer",)

# optimizer, hyper-parameters under torch's names
VARIANTS = [
    ("adamw", dict(lr=1e-3)),
    ("adamw", dict(lr=0.01, betas=(0.9, 0.95), weight_decay=0.1)),
    ("adamw", dict(lr=0.01, betas=(0.0, 0.99), weight_decay=0.0)),
    ("adamw", dict(lr=0.05, betas=(0.25, 0.5), eps=0.125, weight_decay=0.5)),
    ("sgd", dict(lr=0.1)),
    ("sgd", dict(lr=0.1, weight_decay=0.05)),
    ("sgd", dict(lr=0.01, momentum=0.9)),
    ("sgd", dict(lr=0.01, momentum=0.9, dampening=0.3, weight_decay=0.01)),
    ("sgd", dict(lr=0.01, momentum=0.9, nesterov=True)),
    ("sgd", dict(lr=0.01, momentum=0.7, nesterov=True, weight_decay=0.1)),
]
CLASSES = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def values(generator, low, high):
    """Normal numbers times powers of ten; one in eight is zero."""
    x = torch.randn(NUMEL, generator=generator)
    x *= 10.0 ** torch.randint(low, high + 1, (NUMEL,), generator=generator)
    return torch.where(torch.randint(0, 8, (NUMEL,), generator=generator) == 0, 0.0, x)


def snapshot(optimizer, parameter):
    state = optimizer.state[parameter]
    zero = torch.zeros(NUMEL)
    names = ADAMW if "exp_avg" in state else SGD
    moments = [state[n] if state.get(n) is not None else zero for n in names]
    return [parameter.detach().clone()] + [m.clone() for m in (moments + [zero])[:2]]


def train(name, options, start, gradients):
    """Parameter and moments at each checkpoint."""
    parameter = torch.nn.Parameter(start.clone())
    extra = dict(fused=False, foreach=False)
    optimizer = CLASSES[name]([parameter], **options, **extra)
    out = []
    for step, gradient in enumerate(gradients, 1):
        parameter.grad = gradient.clone()
        optimizer.step()
        if step in CHECKPOINTS:
            out.append(snapshot(optimizer, parameter))
    return out


def literal(x):
    """The shortest hexadecimal float: 0x1.8p+0 for 0x1.8000000000000p+0."""
    mantissa, exponent = float(x).hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{exponent}f"


def array(tensor, indent, end):
    text = ", ".join(literal(x) if x else "0" for x in tensor)
    lines, line = [], indent + "{"
    for word in text.split(" "):
        if len(line) + len(word) + 3 > 100:
            lines.append(line.rstrip())
            line = indent + " "
        line += word + " "
    return "\n".join(lines + [line.rstrip() + "}" + end])


def group(name, options):
    fields = [f".optimizer = KEEL_OPTIMIZER_{name.upper()}", f".lr = {options['lr']}"]
    if name == "adamw":
        beta1, beta2 = options.get("betas", (0.9, 0.999))
        fields += [f".beta1 = {beta1}", f".beta2 = {beta2}", f".eps = {options.get('eps', 1e-8)}"]
    fields.append(f".weight_decay = {options.get('weight_decay', 0.01 if name == 'adamw' else 0)}")
    for key in ("momentum", "dampening"):
        if options.get(key):
            fields.append(f".{key} = {options[key]}")
    if options.get("nesterov"):
        fields.append(".nesterov = 1")
    return ",\n      ".join(", ".join(fields[i:i + 4]) for i in range(0, len(fields), 4))


def main():
    generator = torch.Generator().manual_seed(20)
    start = values(generator, -3, 1)
    gradients = [values(generator, -6, 2) for _ in range(STEPS)]
    print(f"""// clang-format off
/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Made by make_optim_fixture.py with torch {torch.__version__}: single tensor, CPU, f32, no fma. */
enum {{ TORCH_NUMEL = {NUMEL}, TORCH_STEPS = {STEPS}, TORCH_CHECKPOINTS = {len(CHECKPOINTS)} }};

/* The parameter, then exp_avg and exp_avg_sq, or momentum_buffer and nothing. */
typedef struct torch_variant {{
    keel_group group;
    float after[TORCH_CHECKPOINTS][3][TORCH_NUMEL];
}} torch_variant;

static const int torch_checkpoints[TORCH_CHECKPOINTS] = {{{', '.join(map(str, CHECKPOINTS))}}};

static const float torch_start[TORCH_NUMEL] =""")
    print(array(start, "   ", ";"))
    print("\nstatic const float torch_gradients[TORCH_STEPS][TORCH_NUMEL] = {")
    for gradient in gradients:
        print(array(gradient, "    ", ","))
    print("};\n\nstatic const torch_variant torch_variants[] = {")
    for name, options in VARIANTS:
        print(f"    {{{{{group(name, options)}}},\n     {{")
        for snapshot_ in train(name, options, start, gradients):
            print("      {")
            for tensor in snapshot_:
                print(array(tensor, "       ", ",") if tensor.any() else "       {0},")
            print("      },")
        print("     }},")
    print("};")


if __name__ == "__main__":
    main()
