// One variant: compiled once for each instruction set, with -DKAKEYA_VARIANT=name and the flags that allow its instructions.
#include "attention.h"
#include "draw.h"
#include "product.h"
#include "rows.h"
#include "variant.h"

#define KAKEYA_TEXT(name) KAKEYA_QUOTED(name)
#define KAKEYA_QUOTED(name) #name
#define KAKEYA_JOIN(a, b) KAKEYA_JOINED(a, b)
#define KAKEYA_JOINED(a, b) a##b

namespace kakeya {

extern const Variant KAKEYA_JOIN(variant_, KAKEYA_VARIANT);
const Variant KAKEYA_JOIN(variant_, KAKEYA_VARIANT) = {
    KAKEYA_TEXT(KAKEYA_VARIANT), norm, quantize, swiglu, embed, product, heads, attend, draw, exp_in_place,
};

}  // namespace kakeya
