"""exp and log of one double, operation by operation as FreeBSD's msun has them, in Python's floats.

Every operation is one of IEEE 754's, so the bits are what any implementation of the same formulas must give.
"""

import math
from decimal import Context, Decimal, localcontext

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
SQRT_HALF = float.fromhex("0x1.6a09ep-1")
P1, P2, P3, P4, P5 = (  # e_exp.c
    1.66666666666666019037e-01,
    -2.77777777770155933842e-03,
    6.61375632143793436117e-05,
    -1.65339022054652515390e-06,
    4.13813679705723846039e-08,
)
LG1, LG2, LG3, LG4, LG5, LG6, LG7 = (  # e_log.c
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)


def exp(x: float) -> float:
    """For x between -746 and 709.78."""
    k = round(x * 1.44269504088896338700)  # to the nearest, ties to even
    high, low = x - k * LN2_HIGH, k * LN2_LOW
    r = high - low
    t = r * r
    c = r - t * (P1 + t * (P2 + t * (P3 + t * (P4 + t * P5))))
    return math.ldexp(1.0 - ((low - r * c / (2.0 - c)) - high), k)


def log(x: float) -> float:
    """For x above 0."""
    fraction, k = math.frexp(x)
    if fraction < SQRT_HALF:
        fraction, k = 2.0 * fraction, k - 1
    f = fraction - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    r = z * (LG1 + w * (LG3 + w * (LG5 + w * LG7))) + w * (LG2 + w * (LG4 + w * LG6))
    half_square = 0.5 * f * f
    return s * (half_square + r) + k * LN2_LOW - half_square + f + k * LN2_HIGH


def error_ulps(name: str, x: float, y: float) -> float:
    """How far y lies from the true exp or log of x, in units in the last place of y."""
    with localcontext(Context(prec=60, Emin=-9999)):
        truth = Decimal(x).exp() if name == "exp" else Decimal(x).ln()
        return float(abs(truth - Decimal(y)) / Decimal(math.ulp(y)))
