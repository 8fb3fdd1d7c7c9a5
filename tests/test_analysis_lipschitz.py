"""Lipschitz bounds against known answers, unrolled matrices and Jacobians."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from torch import nn

from complearn.analysis.smoothness.agents import (
    agent_functions,
    bound_by_part,
    generations_figure,
    joint_domain,
    layers_figure,
)
from complearn.analysis.smoothness.bounds import Bound, Context, Domain, Factor, factor, measure_domain, residual
from complearn.analysis.smoothness.norms import (
    _plain_attention,
    _power_iteration,
    attention_norm,
    convolution_norm,
    jacobian_norms,
    lower_estimate,
    matrix_norm,
)
from complearn.analysis.smoothness.rules import RULES, upper_bound
from complearn.data.pairs import Pair
from complearn.data.word_tokenizer import WordTokenizer
from complearn.models.dual import build_model
from complearn.models.towers.base import Block


def jacobian(function, x):
    """The whole Jacobian of one input's function, as a matrix."""
    wide = torch.autograd.functional.jacobian(lambda z: function(z[None])[0], x)
    return wide.reshape(-1, x.numel())


def top(matrix):
    return float(torch.linalg.matrix_norm(matrix.double(), 2))


# --- known answers


def test_linear_and_orthogonal_maps():
    torch.manual_seed(0)
    linear = nn.Linear(7, 5)
    turn = nn.Linear(6, 6)
    with torch.no_grad():
        turn.weight.copy_(torch.linalg.qr(torch.randn(6, 6))[0])
    assert upper_bound(linear).value == pytest.approx(top(linear.weight), rel=1e-6)
    assert upper_bound(nn.Sequential(turn, turn)).value == pytest.approx(1, rel=1e-5)
    assert float(lower_estimate(turn, torch.randn(3, 6))[0].max()) == pytest.approx(1, rel=1e-5)


def test_a_relu_net_of_diagonal_matrices_attains_the_product():
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    with torch.no_grad():
        net[0].weight.copy_(torch.diag(torch.tensor([4.0, 1.0, 0.5])))
        net[2].weight.copy_(torch.diag(torch.tensor([2.0, 5.0, 1.0])))
        net[0].bias.zero_()
    assert upper_bound(net).value == pytest.approx(20)
    # 4 x 2 in one direction, 1 x 5 in another
    assert float(lower_estimate(net, torch.ones(1, 3))[0]) == pytest.approx(8, rel=1e-3)
    aligned = nn.Sequential(net[0], nn.ReLU(), net[0])
    assert upper_bound(aligned).value == pytest.approx(16)
    assert float(lower_estimate(aligned, torch.ones(1, 3))[0]) == pytest.approx(16, rel=1e-3)


@pytest.mark.parametrize("stride,padding,dilation,groups,kernel", [
    (1, 0, 1, 1, 3), (1, 1, 1, 1, 3), (2, 1, 1, 1, 3), (3, 0, 1, 1, 3), (4, 0, 1, 2, 3), (1, 2, 2, 2, 3),
    (2, 0, 1, 4, 2), (1, 0, 1, 1, 1),
])  # fmt: skip
def test_a_convolution_has_the_norm_of_its_unrolled_matrix(stride, padding, dilation, groups, kernel):
    torch.manual_seed(1)
    layer = nn.Conv2d(4, 4, kernel, stride, padding, dilation, groups, bias=False)
    x = torch.randn(4, 8, 8)
    wanted = top(jacobian(layer, x))
    kind = (layer.stride, layer.padding, layer.dilation, groups)
    exact, near = (convolution_norm(layer.weight, (4, 8, 8), *kind, small=small) for small in (1024, 0))
    assert exact.certainty == "bound" and exact.value == pytest.approx(wanted, rel=1e-5)
    assert wanted * (1 - 2e-3) <= near.value <= wanted * (1 + 1e-5)
    domain = measure_domain(nn.Sequential(layer), x[None])
    assert upper_bound(nn.Sequential(layer), domain).value == pytest.approx(wanted, rel=1e-5)


def test_power_iteration_is_an_estimate_and_says_when_it_was_stopped():
    matrix = torch.randn(300, 200, generator=torch.Generator().manual_seed(2))
    near = matrix_norm(matrix, small=10)
    stopped = matrix_norm(matrix, small=10, most=2)
    assert near.certainty == "estimate" and top(matrix) * (1 - 1e-3) <= near.value <= top(matrix) * (1 + 1e-5)
    assert stopped.certainty == "not converged" and stopped.steps == 2 and stopped.value < near.value
    net = nn.Sequential(nn.Linear(200, 300), nn.Linear(300, 2))
    assert upper_bound(net, small=10).certainty == "estimate"
    assert upper_bound(net, small=10, most=2).certainty == "not converged"
    assert _power_iteration(lambda v: 0 * v, lambda u: 0 * u, torch.ones(3)).value == 0
    _, done = jacobian_norms(lambda x: x @ matrix, torch.randn(2, 300), most=2)
    assert not done.any()


def test_layer_norm_globally_and_on_its_domain():
    norm = nn.LayerNorm(12)
    nn.init.uniform_(norm.weight, -2, 2)
    x = torch.randn(40, 12)
    domain = measure_domain(nn.Sequential(norm), x)
    assert upper_bound(nn.Sequential(norm)).value == pytest.approx(
        float(norm.weight.abs().max()) / math.sqrt(norm.eps), rel=1e-5
    )
    bound = upper_bound(nn.Sequential(norm), domain).value
    assert bound == pytest.approx(
        float(norm.weight.abs().max()) / math.sqrt(float(x.var(1, unbiased=False).min()) + norm.eps), rel=1e-5
    )
    pairs = (norm(x)[:, None] - norm(x)[None]).norm(dim=-1) / (x[:, None] - x[None]).norm(dim=-1).clamp(min=1e-9)
    assert float(pairs.max()) <= bound * (1 + 1e-5)  # of any two points, though the domain is not convex


@pytest.mark.parametrize("heads,bias,causal", [(1, False, False), (2, True, False), (2, True, True)])
def test_attention_stays_above_a_searched_jacobian(heads, bias, causal):
    torch.manual_seed(3)
    tokens = 3
    width = 4
    radius = 2.0
    q, k, v = 1.2 * torch.randn(3, width, width)
    b = torch.randn(width) if bias else torch.zeros(width)

    def split(x):
        return x.unflatten(-1, (heads, -1)).transpose(-2, -3)

    def attend(x):
        out = F.scaled_dot_product_attention(split(x @ q.T + b), split(x @ k.T), split(x @ v.T), is_causal=causal)
        return out.transpose(-2, -3).flatten(-2)

    bound = attention_norm(q, k, v, b, heads, tokens, radius)
    points = radius * F.normalize(torch.randn(400, tokens, width), dim=-1) * torch.rand(400, tokens, 1) ** 0.25
    values, _ = jacobian_norms(attend, points, most=30)
    x = points[values.argsort(descending=True)[:3]].clone().requires_grad_()
    climb = torch.optim.Adam([x], 0.05)
    for _ in range(25):  # uphill in the ball
        for one in x:
            with _plain_attention():
                full = torch.autograd.functional.jacobian(lambda z: attend(z[None])[0], one, create_graph=True)
                (-torch.linalg.matrix_norm(full.reshape(tokens * width, -1), 2)).backward(inputs=[x])
        climb.step(), climb.zero_grad()
        with torch.no_grad():
            x.mul_((radius / x.norm(dim=-1, keepdim=True)).clamp(max=1))
    best = max(float(values.max()), float(jacobian_norms(attend, x.detach(), most=50)[0].max()))
    assert best <= bound <= 40 * best
    doubled = attention_norm(q, k, v, b, heads, tokens, 2 * radius)
    assert doubled > 2 * bound  # it grows with the square of the radius, as it must


# --- upper and lower, as a property


def nets(kind, width):
    parts = {
        "linear": lambda: (nn.Sequential(nn.Linear(width, 6), nn.Linear(6, 3)), (width,)),
        "relu": lambda: (nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, 3)), (width,)),
        "gelu": lambda: (nn.Sequential(nn.Linear(width, 8), nn.GELU(), nn.Linear(8, 3)), (width,)),
        "tanh gelu": lambda: (nn.Sequential(nn.GELU("tanh")), (width,)),
        "convolution": lambda: (
            nn.Sequential(nn.Conv2d(2, 3, 3, 2, 1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
            (2, 8, 8),
        ),
        "average": lambda: (
            nn.Sequential(nn.Conv2d(2, 3, 3, 1, 1), nn.AvgPool2d(3, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
            (2, 8, 8),
        ),
        "norm": lambda: (nn.Sequential(nn.Linear(width, 8), nn.LayerNorm(8), nn.Linear(8, 4)), (width,)),
        "block": lambda: (nn.Sequential(Block(8, 2, 1), nn.LayerNorm(8)), (4, 8)),
        "causal block": lambda: (nn.Sequential(Block(8, 2, 1, causal=True), Block(8, 2, 1, causal=True)), (4, 8)),
        "attention": lambda: (Block(8, 2, 1).attention, (4, 8)),
    }
    return parts[kind]()


KINDS = ["linear", "relu", "gelu", "tanh gelu", "convolution", "average", "norm", "block", "causal block", "attention"]


@settings(max_examples=30, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    width=st.integers(2, 9),
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([0.1, 1.0, 4.0]),
)
def test_no_jacobian_is_above_the_bound(kind, width, seed, spread):
    torch.manual_seed(seed)
    net, shape = nets(kind, width)
    net.eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn_like(parameter) / max(1, parameter.shape[-1]) ** 0.5 + (parameter.ndim == 1))
    x = spread * torch.randn(6, *shape)
    bound = upper_bound(net, measure_domain(net, x))
    assert bound.certainty == "bound"
    found, _ = lower_estimate(net, x, most=20)
    assert float(found.max()) <= bound.value * (1 + 1e-4)


WORDS = ["a red square left of a blue circle", "a green circle", "a blue square above a red square", "two circles"]


def small_dual(seed, codebook, width=16):
    sizes = {"tower": "tiny", "width": width, "depth": 1, "heads": 2}
    model = build_model(
        {"vision": sizes | {"size": 16, "patch": 8}, "text": sizes, "codebook": codebook},
        WordTokenizer.fit(WORDS),
        seed,
    )
    images = torch.randint(
        0, 255, (4, 16, 16, 3), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8
    ).numpy()
    batch = model.collate([Pair(images[i], WORDS[i], str(i), str(i)) for i in range(4)])
    model.eval().calibrate(batch)
    return model, batch


@pytest.mark.parametrize(
    "codebook", [None, {"codes": 12}, {"codes": 12, "similarity": "dot", "init": "normal", "share": 0.3}]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_no_agent_stretches_more_than_its_bound(codebook, seed):
    model, batch = small_dual(seed, codebook)
    both = agent_functions(model, batch)
    with torch.no_grad():
        out = model(batch)
    domain = joint_domain(both)
    for name, side in both.items():
        # the same function
        assert torch.allclose(side.run(side.inputs), getattr(out, "image" if name == "vision" else "text"), atol=1e-5)
        bound = side.upper(domain)
        values = side.lower()[0]
        assert bound.certainty == "bound" and 0 < float(values.max()) <= bound.value * (1 + 1e-4)
        assert sum(bound_by_part(bound).values()) == pytest.approx(bound.log10)
        wider = side.upper(domain.uniform())
        assert wider.log10 >= bound.log10 - 1e-9  # one number for all layers is a looser bound


def test_a_joint_domain_holds_for_both_models():
    one, batch = small_dual(0, {"codes": 12})
    two, _ = small_dual(5, {"codes": 12})
    first = agent_functions(one, batch)
    second = agent_functions(two, batch)
    joint = joint_domain(first, second)
    for own in (joint_domain(first), joint_domain(second)):
        assert all(joint.floors[place] <= floor for place, floor in own.floors.items())
        assert all(joint.radii[place] >= radius for place, radius in own.radii.items())
    assert first["vision"].upper(joint).log10 >= first["vision"].upper(joint_domain(first)).log10


# --- libraries


def test_torchvision_resnet_has_a_bound_above_its_jacobian():
    resnet = pytest.importorskip("torchvision.models.resnet")
    torch.manual_seed(0)
    net = resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1], num_classes=5, width_per_group=64).eval()
    x = torch.randn(2, 3, 32, 32)
    domain = measure_domain(net, x)
    bound = upper_bound(net, domain, most=30, tol=1e-2)
    assert bound.log10 > math.log10(float(lower_estimate(net, x, most=5)[0].max()))
    assert [f.kind for f in bound.factors].count("residual") == 4
    assert bound.certainty != "bound"  # by power iteration, so no true bound


def test_open_clip_vit_and_text_have_bounds_above_their_jacobians():
    transformer = pytest.importorskip("open_clip.transformer")
    torch.manual_seed(0)
    vit = transformer.VisionTransformer(16, 8, 16, 2, 2, 2.0, output_dim=8, ls_init_value=0.5).eval()
    x = torch.randn(2, 3, 16, 16)
    bound = upper_bound(vit, measure_domain(vit, x))
    assert bound.certainty == "bound" and bound.value > float(lower_estimate(vit, x, most=20)[0].max())
    with pytest.raises(TypeError, match="attn_pool"):
        upper_bound(
            transformer.VisionTransformer(
                16, 8, 16, 1, 2, 2.0, attentional_pool=True, attn_pooler_heads=2, output_dim=8
            ),
            Domain(),
        )


def test_open_clip_modified_resnet_has_a_bound_above_its_jacobian():
    home = pytest.importorskip("open_clip.modified_resnet")
    torch.manual_seed(0)
    net = home.ModifiedResNet([1, 1, 1, 1], 8, 4, 32, 8).eval()
    x = torch.randn(2, 3, 32, 32)
    assert upper_bound(net, measure_domain(net, x), most=50).value > float(lower_estimate(net, x, most=5)[0].max())


# --- faults, and figures


def test_an_unknown_module_is_named_and_told_how_to_register():
    class Strange(nn.Module):
        def forward(self, x):
            return x

    with pytest.raises(TypeError, match=r"Strange \(at '1'\).*@register_rule"):
        upper_bound(nn.Sequential(nn.Linear(2, 2), Strange()))


def test_what_needs_a_domain_says_so():
    with pytest.raises(ValueError, match="needs its input's size"):
        upper_bound(nn.Conv2d(3, 3, 3))
    with pytest.raises(ValueError, match="no constant on unbounded tokens"):
        upper_bound(Block(8, 2, 1).attention, Domain(shapes={"": (3, 8)}))
    model, batch = small_dual(0, None)
    with pytest.raises(ValueError, match="no Lipschitz constant near 0"):
        agent_functions(model, batch)["vision"].upper(Domain(shapes=joint_domain(agent_functions(model, batch)).shapes))
    with pytest.raises(ValueError, match="training mode"):
        agent_functions(model.train(), batch)


def test_residual_and_very_large_bounds():
    context = Context(RULES)

    def linear(norm):
        return factor(context, "linear", norm)

    assert residual(context, "branch", linear(3.0)).log10 == pytest.approx(math.log10(4))
    assert residual(context, "branch", linear(0.0)).log10 == 0
    assert residual(context, "branch", linear(3.0), linear(0.5)).log10 == pytest.approx(math.log10(3.5))
    huge = Bound(tuple(Factor("x", "linear", 100.0) for _ in range(5)))
    assert huge.log10 == 500 and huge.value == math.inf


def test_figures_name_the_domain():
    bound = Bound((Factor("a", "linear", 2.0), Factor("b", "linear", -1.0, "estimate")))
    figure = layers_figure({"last": bound}, "variance >= 0.1, at most 17 tokens")
    assert "variance &gt;= 0.1" in figure.layout.title.text  # plotly reads markup, so the sign is escaped
    assert [figure.data[0].base + length for length in figure.data[0].x] == pytest.approx([100, 0.1])  # bars begin at 1
    assert "estimate" in figure.data[0].name and figure.layout.xaxis.type == "log"
    from complearn.core.results import row, rows_table

    told = [
        row("il_clip", s, "p", 10, "d", "vision", m, 5.0 + s)
        for s in (0, 1)
        for m in ("lipschitz_upper_log10", "lipschitz_lower_log10")
    ]
    drawn = generations_figure(rows_table(told), "a stated domain")
    assert "a stated domain" in drawn.layout.title.text and drawn.data[0].y[0] == pytest.approx(10**5.5)
