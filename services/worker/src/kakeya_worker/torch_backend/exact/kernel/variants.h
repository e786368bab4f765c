// The variants that were built, best first, and which of them this processor runs.
#pragma once

#include "variant.h"

namespace kakeya {

// Null where it was not built or does not run here.
const Variant* find_variant(const char* name);

// The names of those that run here, best first, with a space between them.
const char* variant_names();

}  // namespace kakeya
