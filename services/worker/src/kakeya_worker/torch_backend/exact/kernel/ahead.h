// Where attention's memory is fetched from before it is computed: a lane is larger than the caches.
#pragma once

#include "variant.h"
#include "vectors.h"

namespace kakeya {
namespace {

// Where a block begins: the one at this step of all blocks' keys, then of their values, then of what is computed after
// this. Null: it is beyond that. A block's slots lie one behind another.
KAKEYA_LOCAL const char* block_at(int step, const Attention& row, const Attention* next, int64_t slot_bytes) {
  const Attention* of = &row;
  if (step >= 2 * of->num_blocks) {
    step -= 2 * of->num_blocks;
    of = next;
    if (of == nullptr || step >= 2 * of->num_blocks) return nullptr;
  }
  const bool is_key = step < of->num_blocks;
  const int block = is_key ? step : step - of->num_blocks;
  return (is_key ? of->keys : of->values) + of->slots[block * kBlock] * slot_bytes;
}

}  // namespace
}  // namespace kakeya
