// The draw of a token: Gumbel-max with Philox4x32-10, as engine/sampling has it, and the same bits.
//
// A uniform number of an id takes ten rounds of integers, which vectors do for many ids at once. Its Gumbel number takes two
// logarithms, which are left to the few ids that can win.
#pragma once

#include "vectors.h"

namespace kakeya {
namespace {

constexpr int64_t kDrawn = 256;  // ids at a time
constexpr int kRounds = 10;

// What differs from round to round, in all 64 bits of a lane.
struct PhiloxKeys {
  uint64_t first[kRounds], second[kRounds];

  explicit PhiloxKeys(uint64_t seed) {
    uint32_t low = static_cast<uint32_t>(seed), high = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < kRounds; ++round, low += 0x9E3779B9u, high += 0xBB67AE85u) first[round] = low, second[round] = high;
  }
};

#if defined(__AVX512F__)
typedef __m512i Words;
KAKEYA_LOCAL Words words(uint64_t x) { return _mm512_set1_epi64(static_cast<int64_t>(x)); }
KAKEYA_LOCAL Words product(Words a, Words b) { return _mm512_mul_epu32(a, b); }
#elif defined(__AVX2__)
typedef __m256i Words;
KAKEYA_LOCAL Words words(uint64_t x) { return _mm256_set1_epi64x(static_cast<int64_t>(x)); }
KAKEYA_LOCAL Words product(Words a, Words b) { return _mm256_mul_epu32(a, b); }
#else
typedef uint64_t Words;
KAKEYA_LOCAL Words words(uint64_t x) { return x; }
KAKEYA_LOCAL Words product(Words a, Words b) { return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu); }
#endif
typedef uint64_t Lanes __attribute__((vector_size(sizeof(Words)), aligned(8), may_alias));
constexpr int64_t kWords = sizeof(Words) / 8;

// The 52 bits of u for each id; [kDrawn].
inline void uniform_bits(const PhiloxKeys& keys, uint64_t history_index, const int64_t* ids, uint64_t* bits) {
  const Words multiplier0 = words(0xD2511F53u), multiplier1 = words(0xCD9E8D57u);
  const Words index_low = words(history_index & 0xFFFFFFFFu), index_high = words(history_index >> 32);
  for (int64_t i = 0; i < kDrawn; i += kWords) {
    Lanes x0 = (Lanes)index_low, x1 = (Lanes)index_high, x2 = *reinterpret_cast<const Lanes*>(ids + i), x3 = x2 - x2;
    for (int round = 0; round < kRounds; ++round) {
      // A product takes the lower halves of its lanes. So what stands in the upper ones need not be taken away.
      const Lanes product0 = (Lanes)product((Words)x0, multiplier0), product1 = (Lanes)product((Words)x2, multiplier1);
      x0 = (product1 >> 32) ^ x1 ^ (Lanes)words(keys.first[round]);
      x1 = product1;
      x2 = (product0 >> 32) ^ x3 ^ (Lanes)words(keys.second[round]);
      x3 = product0;
    }
    *reinterpret_cast<Lanes*>(bits + i) = ((x0 << 32) | (x1 & 0xFFFFFFFFu)) >> 12;
  }
}

KAKEYA_LOCAL double as_double(uint64_t bits) {
  double x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

KAKEYA_LOCAL uint64_t as_bits(double x) {
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

// `elementary.log` of a normal number, operation by operation.
inline double logarithm(double x) {
  constexpr uint64_t kSqrtHalf = 0x3FE6A09E00000000u, kOne = 0x3FF0000000000000u, kFraction = (1ull << 52) - 1;
  constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr double g1 = 0x1.5555555555593p-1, g2 = 0x1.999999997fa04p-2, g3 = 0x1.2492494229359p-2, g4 = 0x1.c71c51d8e78afp-3,
                   g5 = 0x1.7466496cb03dep-3, g6 = 0x1.39a09d078c69fp-3, g7 = 0x1.2f112df3e5244p-3;
  const uint64_t bits = as_bits(x) + (kOne - kSqrtHalf);
  const double k = static_cast<double>(static_cast<int64_t>(bits >> 52) - 1023);
  const double f = as_double((bits & kFraction) + kSqrtHalf) - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double w = z * z;
  const double r = z * (g1 + w * (g3 + w * (g5 + w * g7))) + w * (g2 + w * (g4 + w * g6));
  const double half_square = 0.5 * f * f;
  return s * (half_square + r) + k * kLn2Low - half_square + f + k * kLn2High;
}

// What a Gumbel number is at most: -log(u) >= 1 - u >= 2^e, with the e of its float. `kTolerance` is far above rounding.
KAKEYA_LOCAL double most_gumbel(uint64_t bits) {
  constexpr double kTolerance = 1e-9, kLn2 = 0x1.62e42fefa39efp-1;
  constexpr uint64_t kTwo52 = 0x4330000000000000u;  // the bits of 2^52: in a float of that exponent an integer stands as it is
  const double times_two52 = 0x1p53 - as_double(bits | kTwo52) - 0.5;  // (1 - u) 2^52
  const double exponent = as_double((as_bits(times_two52) >> 52) | kTwo52) - (0x1p52 + 1023.0 + 52.0);
  return kTolerance - exponent * kLn2;
}

// The place of the highest score with its Gumbel number, of equals the first. Ids are the places where there are none.
int64_t draw(const double* scores, const int64_t* ids, int64_t num, uint64_t seed, uint64_t history_index) {
  const PhiloxKeys keys(seed);
  int64_t some_ids[kDrawn];
  uint64_t bits[kDrawn];
  double most[kDrawn];
  double best = -__builtin_inf();
  int64_t place = 0;
  for (int64_t start = 0; start < num; start += kDrawn) {
    const int64_t size = num - start < kDrawn ? num - start : kDrawn;
    for (int64_t i = 0; i < kDrawn; ++i) some_ids[i] = ids == nullptr ? start + i : i < size ? ids[start + i] : 0;
    uniform_bits(keys, history_index, some_ids, bits);
    for (int64_t i = 0; i < size; ++i) most[i] = scores[start + i] + most_gumbel(bits[i]);
    for (int64_t i = 0; i < size; ++i) {
      if (most[i] < best) continue;
      const double u = (static_cast<double>(bits[i]) + 0.5) * 0x1p-52;
      const double score = scores[start + i] - logarithm(-logarithm(u));
      if (score > best) best = score, place = start + i;
    }
  }
  return place;
}

}  // namespace
}  // namespace kakeya
