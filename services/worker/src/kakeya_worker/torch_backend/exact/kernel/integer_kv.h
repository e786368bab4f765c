// How queries, keys and values become integers where the KV is int8: docs/numerics.md, "Int8 KV".
#pragma once

#include "variant.h"
#include "vectors.h"

namespace kakeya {
namespace {

constexpr float kSlotLimit = 127.0f;
constexpr float kActivationLimit = 32639.0f;  // 127 * 256 + 127; of queries, too
constexpr float kLeastMagnitude = 0x1p-100f;  // what is below counts as zero: its reciprocal would overflow

// Sums of the lanes that are kStep apart in the lower of them, differences in the upper.
template <int kStep>
KAKEYA_LOCAL F butterfly(F x) {
  if constexpr (kStep >= kPartLanes) {
    constexpr int kFar = kStep / kPartLanes;
    F y;
    KAKEYA_EACH_PART(const FloatPart other = x.part[p ^ kFar];
                     y.part[p] = p & kFar ? other - x.part[p] : x.part[p] + other);
    return y;
  } else {
    const U lanes = load(kLaneNumbers) & static_cast<uint32_t>(kStep);
    const F signed_x = as<F>(as<U>(x) + (lanes << (31u - static_cast<uint32_t>(__builtin_ctz(kStep)))));
    F y;
    KAKEYA_EACH_PART(y.part[p] = swapped<kStep>(x.part[p]) + signed_x.part[p]);
    return y;
  }
}

// In place, a Hadamard transform without its factor of blocks of `size`, the largest power of two that divides head_dim:
// steps of 1, 2, 4 .. size / 2 turn (x_i, x_i+step) into (x_i + x_i+step, x_i - x_i+step).
inline void spread(float* x, int64_t head_dim) {
  const int64_t size = head_dim & -head_dim;
  for (int64_t i = 0; i < head_dim; i += kLanes) {
    F some = load_some(x + i, head_dim - i);
    if (size > 1) some = butterfly<1>(some);
    if (size > 2) some = butterfly<2>(some);
    if (size > 4) some = butterfly<4>(some);
    if (size > 8) some = butterfly<8>(some);
    store_some(x + i, some, head_dim - i);
  }
  for (int64_t step = kLanes; step < size; step *= 2)
    for (int64_t block = 0; block < head_dim; block += 2 * step)
      for (int64_t i = block; i < block + step; i += kLanes) {
        const F low = load(x + i), high = load(x + i + step);
        store(x + i, low + high);
        store(x + i + step, low - high);
      }
}

inline float largest_magnitude(const float* x, int64_t num) {
  I most = all(0);  // as bits: they grow with the magnitude, and what is not a number is above all
  for (int64_t i = 0; i < num; i += kLanes) most = larger(most, as<I>(absolute(load_some(x + i, num - i))));
  return as<float>(largest(most));
}

inline float not_a_number_unless_finite(float x) { return x - x == 0.0f ? x : __builtin_nanf(""); }

// int8 [head_dim], then their scale.
struct Slot {
  static float scale(const char* slot, int64_t head_dim) {
    uint16_t bits;
    std::memcpy(&bits, slot + head_dim, sizeof bits);
    return as<float>(static_cast<uint32_t>(bits) << 16);
  }
};

inline void store_slot(const float* x, int64_t head_dim, char* slot) {
  const float magnitude = largest_magnitude(x, head_dim);
  const bool counts = !(magnitude / kSlotLimit < kLeastMagnitude);
  // Rounded up, so that no number exceeds 127.
  uint32_t bits = counts ? (as<uint32_t>(magnitude / kSlotLimit) + 0xFFFFu) >> 16 : 0;
  if (magnitude - magnitude != 0.0f) bits = 0x7FC0;
  const float inverse = counts ? 1.0f / as<float>(bits << 16) : 0.0f;
  for (int64_t i = 0; i < head_dim; i += kLanes) {
    const I whole = round_to_int(load_some(x + i, head_dim - i) * inverse);
    int8_t bytes[kLanes];
    KAKEYA_EACH_PART(const BytePart some = __builtin_convertvector(whole.part[p], BytePart);
                     std::memcpy(bytes + p * kPartLanes, &some, sizeof some));
    const int64_t left = head_dim - i;
    std::memcpy(slot + i, bytes, left < kLanes ? left : kLanes);
  }
  const uint16_t stored = static_cast<uint16_t>(bits);
  std::memcpy(slot + head_dim, &stored, sizeof stored);
}

// A query in 16 bits: of each four numbers first 0 and 2, then 1 and 3, as the products take them; and its scale.
struct StoredQuery {
  static const char* quads(const float* stored) { return reinterpret_cast<const char*>(stored); }
  static float scale(const float* stored, int64_t padded) { return stored[padded / 2]; }
};

// Of four lanes 0 and 2, then 1 and 3.
KAKEYA_LOCAL IntPart evens_first(IntPart x) {
#if defined(__AVX512F__)
  return KAKEYA_SWAPPED(x, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
#elif defined(__AVX2__)
  return KAKEYA_SWAPPED(x, 0, 2, 1, 3, 4, 6, 5, 7);
#else
  return KAKEYA_SWAPPED(x, 0, 2, 1, 3);
#endif
}

inline void store_pairs(I whole, int16_t* to) {
  KAKEYA_EACH_PART(const ShortPart some = __builtin_convertvector(evens_first(whole.part[p]), ShortPart);
                   std::memcpy(to + p * kPartLanes, &some, sizeof some));
}

// stored [padded], of which a query takes half and its scale.
inline void store_query(const float* x, int64_t head_dim, float* stored, int64_t padded) {
  const float magnitude = largest_magnitude(x, head_dim);
  const float inverse = magnitude < kLeastMagnitude ? 0.0f : kActivationLimit / magnitude;
  auto* shorts = reinterpret_cast<int16_t*>(stored);
  for (int64_t i = 0; i < padded; i += kLanes) {
    const int64_t left = head_dim - i;
    store_pairs(left > 0 ? round_to_int(load_some(x + i, left) * inverse) : all(0), shorts + i);
  }
  stored[padded / 2] = not_a_number_unless_finite(magnitude / kActivationLimit);
}

}  // namespace
}  // namespace kakeya
