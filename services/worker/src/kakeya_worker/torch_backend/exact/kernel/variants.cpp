#include "variants.h"

#include <cstring>
#include <string>

#include "processor.h"

namespace kakeya {

#define KAKEYA_DECLARED(name) extern const Variant variant_##name;
KAKEYA_EACH_VARIANT(KAKEYA_DECLARED)

namespace {

struct Built {
  const Variant& variant;
  bool (*runs_here)();
};
#define KAKEYA_LISTED(name) {variant_##name, runs_##name},
const Built kBuilt[] = {KAKEYA_EACH_VARIANT(KAKEYA_LISTED)};

}  // namespace

const Variant* find_variant(const char* name) {
  for (const Built& built : kBuilt)
    if (std::strcmp(name, built.variant.name) == 0) return built.runs_here() ? &built.variant : nullptr;
  return nullptr;
}

const char* variant_names() {
  static const std::string names = [] {
    std::string joined;
    for (const Built& built : kBuilt)
      if (built.runs_here()) joined += (joined.empty() ? "" : " ") + std::string(built.variant.name);
    return joined;
  }();
  return names.c_str();
}

}  // namespace kakeya
