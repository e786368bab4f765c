// Sixteen numbers at once, in as many of the processor's vectors as that takes: every instruction set computes the same bits.
//
// Plain IEEE operations only. Nothing here may be contracted or reassociated: -ffp-contract=off, never -ffast-math.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "variant.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace kakeya {
namespace {

constexpr int kLanes = 16;

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
constexpr int kParts = 64 / kVectorBytes;
constexpr int kPartLanes = kLanes / kParts;

typedef float FloatPart __attribute__((vector_size(kVectorBytes)));
typedef int32_t IntPart __attribute__((vector_size(kVectorBytes)));
typedef uint32_t UIntPart __attribute__((vector_size(kVectorBytes)));
typedef uint16_t HalfPart __attribute__((vector_size(kVectorBytes / 2)));
typedef int16_t ShortPart __attribute__((vector_size(kVectorBytes / 2)));
typedef int8_t BytePart __attribute__((vector_size(kVectorBytes / 4)));

// Compilers keep vectors that the processor has in registers, and wider ones in memory: hence parts.
template <class Part, class Lane>
struct Wide {
  Part part[kParts];
};

typedef Wide<FloatPart, float> F;
typedef Wide<IntPart, int32_t> I;
typedef Wide<UIntPart, uint32_t> U;

constexpr uint32_t kLaneNumbers[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
constexpr uint32_t kLaneBits[kLanes] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};

// With p = 0, 1 .. as constants, not as a loop, of which compilers would keep the parts in memory.
template <class Do, int... p>
KAKEYA_LOCAL void each_part(const Do& act, std::integer_sequence<int, p...>) {
  (act(std::integral_constant<int, p>{}), ...);
}
#define KAKEYA_EACH_PART(...) \
  each_part([&](auto p) __attribute__((always_inline)) { __VA_ARGS__; }, std::make_integer_sequence<int, kParts>{})

#define KAKEYA_OPERATOR(symbol)                                                  \
  template <class Part, class Lane>                                              \
  inline Wide<Part, Lane> operator symbol(Wide<Part, Lane> x, Wide<Part, Lane> y) { \
    KAKEYA_EACH_PART(x.part[p] = x.part[p] symbol y.part[p]);                     \
    return x;                                                                    \
  }                                                                              \
  template <class Part, class Lane>                                              \
  inline Wide<Part, Lane> operator symbol(Wide<Part, Lane> x, Lane y) {          \
    KAKEYA_EACH_PART(x.part[p] = x.part[p] symbol y);                             \
    return x;                                                                    \
  }
KAKEYA_OPERATOR(+)
KAKEYA_OPERATOR(-)
KAKEYA_OPERATOR(*)
KAKEYA_OPERATOR(/)
KAKEYA_OPERATOR(&)
KAKEYA_OPERATOR(<<)
KAKEYA_OPERATOR(>>)
#undef KAKEYA_OPERATOR

// A mask: all bits of the lanes for which it is so.
#define KAKEYA_COMPARISON(name, symbol)                                      \
  template <class Part, class Lane>                                          \
  inline I name(Wide<Part, Lane> x, Wide<Part, Lane> y) {                    \
    I mask;                                                                  \
    KAKEYA_EACH_PART(mask.part[p] = (IntPart)(x.part[p] symbol y.part[p]));   \
    return mask;                                                             \
  }
KAKEYA_COMPARISON(is_below, <)
KAKEYA_COMPARISON(is_above, >)
KAKEYA_COMPARISON(is_at_least, >=)
KAKEYA_COMPARISON(differs, !=)
#undef KAKEYA_COMPARISON

inline F all(float x) {
  F all_of_it;
  KAKEYA_EACH_PART(all_of_it.part[p] = FloatPart{} + x);
  return all_of_it;
}
inline I all(int32_t x) {
  I all_of_it;
  KAKEYA_EACH_PART(all_of_it.part[p] = IntPart{} + x);
  return all_of_it;
}

template <class Part, class Lane>
inline Wide<Part, Lane> select(I mask, Wide<Part, Lane> x, Wide<Part, Lane> y) {
  KAKEYA_EACH_PART(x.part[p] = mask.part[p] ? x.part[p] : y.part[p]);
  return x;
}

// The same bits.
template <class To, class From>
inline To as(const From& x) {
  To bits;
  static_assert(sizeof bits == sizeof x);
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
template <class To, class Part, class Lane>
inline To as(Wide<Part, Lane> x) {
  To bits;
  KAKEYA_EACH_PART(bits.part[p] = (decltype(bits.part[p] + bits.part[p]))x.part[p]);
  return bits;
}

inline F to_float(I x) {
  F floats;
  KAKEYA_EACH_PART(floats.part[p] = __builtin_convertvector(x.part[p], FloatPart));
  return floats;
}

inline I towards_zero(F x) {
  I whole;
  KAKEYA_EACH_PART(whole.part[p] = __builtin_convertvector(x.part[p], IntPart));
  return whole;
}

// To the nearest whole number, ties to even, for |x| < 2^22.
inline I round_to_int(F x) {
  const float ones = 12582912.0f;  // 1.5 * 2^23: the last bit of a sum counts ones
  return as<I>(x + ones) - 0x4B400000;
}

inline F load(const float* from) {
  F x;
  KAKEYA_EACH_PART(std::memcpy(&x.part[p], from + p * kPartLanes, kVectorBytes));
  return x;
}
inline U load(const uint32_t* from) {
  U x;
  KAKEYA_EACH_PART(std::memcpy(&x.part[p], from + p * kPartLanes, kVectorBytes));
  return x;
}
inline void store(float* to, F x) { KAKEYA_EACH_PART(std::memcpy(to + p * kPartLanes, &x.part[p], kVectorBytes)); }

// The first num of sixteen, zeros after them.
inline F load_some(const float* p, int64_t num) {
  if (num >= kLanes) return load(p);
  float some[kLanes] = {};
  if (num > 0) std::memcpy(some, p, num * sizeof(float));
  return load(some);
}

inline void store_some(float* p, F x, int64_t num) {
  if (num >= kLanes) return store(p, x);
  float some[kLanes];
  store(some, x);
  if (num > 0) std::memcpy(p, some, num * sizeof(float));
}

inline F absolute(F x) { return as<F>(as<U>(x) & 0x7FFFFFFFu); }
template <class Part, class Lane>
inline Wide<Part, Lane> larger(Wide<Part, Lane> x, Wide<Part, Lane> y) {
  return select(is_above(x, y), x, y);
}

// A mask of a block's sixteen keys, a lane each, out of a bit each.
inline I in_lanes(uint16_t keys) {
  const U bits = load(kLaneBits);
  return differs(bits & static_cast<uint32_t>(keys), bits & 0u);
}

#define KAKEYA_SWAPPED(x, ...) __builtin_shufflevector(x, x, __VA_ARGS__)

// Lane i holds what lane i ^ kStep held; kStep is below the lanes of a part.
template <int kStep, class Part>
KAKEYA_LOCAL Part swapped(Part x) {
#if defined(__AVX512F__)
  if constexpr (kStep == 8) return KAKEYA_SWAPPED(x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  if constexpr (kStep == 4) return KAKEYA_SWAPPED(x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
  if constexpr (kStep == 2) return KAKEYA_SWAPPED(x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  return KAKEYA_SWAPPED(x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
#elif defined(__AVX2__)
  if constexpr (kStep == 4) return KAKEYA_SWAPPED(x, 4, 5, 6, 7, 0, 1, 2, 3);
  if constexpr (kStep == 2) return KAKEYA_SWAPPED(x, 2, 3, 0, 1, 6, 7, 4, 5);
  return KAKEYA_SWAPPED(x, 1, 0, 3, 2, 5, 4, 7, 6);
#else
  if constexpr (kStep == 2) return KAKEYA_SWAPPED(x, 2, 3, 0, 1);
  return KAKEYA_SWAPPED(x, 1, 0, 3, 2);
#endif
}

template <class Part, class Lane>
inline Lane largest(Wide<Part, Lane> x) {
  Part value = x.part[0];
  for (int p = 1; p < kParts; ++p) value = value > x.part[p] ? value : x.part[p];
  const auto fold = [&](auto step) __attribute__((always_inline)) {
    const Part other = swapped<step>(value);
    value = value > other ? value : other;
  };
#if defined(__AVX512F__)
  fold(std::integral_constant<int, 8>{});
#endif
#if defined(__AVX2__) || defined(__AVX512F__)
  fold(std::integral_constant<int, 4>{});
#endif
  fold(std::integral_constant<int, 2>{});
  fold(std::integral_constant<int, 1>{});
  return value[0];
}

inline int32_t total(I x) {
  int32_t sum = 0;
  for (int p = 0; p < kParts; ++p)
    for (int lane = 0; lane < kPartLanes; ++lane) sum += x.part[p][lane];
  return sum;
}

// Halves of two vectors joined at once, in groups of lanes: of a group's first half come a's, of its second b's.
struct Added {
  static KAKEYA_LOCAL FloatPart join(FloatPart a, FloatPart b) { return a + b; }
};
struct Larger {
  static KAKEYA_LOCAL IntPart join(IntPart a, IntPart b) { return a > b ? a : b; }
};
#define KAKEYA_FOLD(name, first, second)                      \
  template <class Joined, class Part>                         \
  KAKEYA_LOCAL Part name(Part a, Part b) {                    \
    return Joined::join(KAKEYA_LANES first, KAKEYA_LANES second); \
  }
#define KAKEYA_LANES(...) __builtin_shufflevector(a, b, __VA_ARGS__)

// Vector number 0 and every fourth after it of as many as a part has lanes, each folded to four lanes.
#if defined(__AVX512F__)
KAKEYA_FOLD(fold_8, (0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23), (8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
KAKEYA_FOLD(fold_4, (0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27), (4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31))
KAKEYA_FOLD(fold_2, (0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29), (2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31))
KAKEYA_FOLD(fold_1, (0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30), (1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31))

template <class J, class Part, class Lane>
KAKEYA_LOCAL Part to_fours(const Wide<Part, Lane>* x) {
  return fold_4<J>(fold_8<J>(x[0].part[0], x[4].part[0]), fold_8<J>(x[8].part[0], x[12].part[0]));
}

#elif defined(__AVX2__)
KAKEYA_FOLD(fold_4, (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))
KAKEYA_FOLD(fold_2, (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15))
KAKEYA_FOLD(fold_1, (0, 2, 8, 10, 4, 6, 12, 14), (1, 3, 9, 11, 5, 7, 13, 15))

template <class J, class Part, class Lane>
KAKEYA_LOCAL Part to_fours(const Wide<Part, Lane>* x) {
  return fold_4<J>(J::join(x[0].part[0], x[0].part[1]), J::join(x[4].part[0], x[4].part[1]));
}

#else
KAKEYA_FOLD(fold_2, (0, 1, 4, 5), (2, 3, 6, 7))
KAKEYA_FOLD(fold_1, (0, 2, 4, 6), (1, 3, 5, 7))

template <class J, class Part, class Lane>
KAKEYA_LOCAL Part to_fours(const Wide<Part, Lane>* x) {
  return J::join(J::join(x->part[0], x->part[2]), J::join(x->part[1], x->part[3]));
}

#endif
#undef KAKEYA_FOLD
#undef KAKEYA_LANES

template <class J, class Part, class Lane>
KAKEYA_LOCAL Wide<Part, Lane> join_all(const Wide<Part, Lane>* x) {
  Wide<Part, Lane> joined;
  KAKEYA_EACH_PART(const auto* own = x + p * kPartLanes;
                   joined.part[p] = fold_1<J>(fold_2<J>(to_fours<J>(own), to_fours<J>(own + 1)),
                                              fold_2<J>(to_fours<J>(own + 2), to_fours<J>(own + 3))));
  return joined;
}

// The folds by halves of sixteen vectors, one in each lane.
inline F fold_all(const F* x) { return join_all<Added>(x); }

// The largest lanes of sixteen vectors, one in each lane.
inline I largest_of_all(const I* x) { return join_all<Larger>(x); }

inline float fold(F x) {
  float lanes[kLanes];
  store(lanes, x);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[half + lane];
  return lanes[0];
}

// Cephes' expf for x <= 0; 0 below -86.
inline F exp_of(F x) {
  const I is_zero = is_below(x, all(-86.0f));
  x = select(is_zero, all(-86.0f), x);
  const F shifted = x * 1.44269504088896341f + 0.5f;
  I whole = towards_zero(shifted);
  whole = whole + is_above(to_float(whole), shifted);  // floor is one less where that went up: a mask is -1
  const F n = to_float(whole);
  x = x - n * 0.693359375f;
  x = x - n * -2.12194440e-4f;
  F y = x * 1.9875691500e-4f + 1.3981999507e-3f;
  y = y * x + 8.3334519073e-3f;
  y = y * x + 4.1665795894e-2f;
  y = y * x + 1.6666665459e-1f;
  y = y * x + 5.0000001201e-1f;
  y = y * (x * x) + x;
  y = y + 1.0f;
  y = y * as<F>((whole + 127) << 23);
  return select(is_zero, all(0.0f), y);
}

inline UIntPart widen(const uint16_t* x) {
#if defined(__AVX512F__)  // of the conversion below compilers make several instructions
  return (UIntPart)_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
#elif defined(__AVX2__)
  return (UIntPart)_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
#else
  HalfPart half;
  std::memcpy(&half, x, sizeof half);
  return __builtin_convertvector(half, UIntPart);
#endif
}

// Two numbers of 16 bits in each lane: adds both products.
inline IntPart add_pairs(IntPart sum, IntPart x, IntPart y) {
#if defined(__AVX512VNNI__)
  return (IntPart)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)x, (__m512i)y);
#elif defined(__AVX2__)
  return sum + (IntPart)_mm256_madd_epi16((__m256i)x, (__m256i)y);
#else
  return sum + ((x << 16) >> 16) * ((y << 16) >> 16) + (x >> 16) * (y >> 16);
#endif
}

// K and V as they lie in the slab.
struct BFloat16 {
  typedef uint16_t Stored;
  static FloatPart load_part(const uint16_t* p) { return (FloatPart)(widen(p) << 16u); }
  static uint16_t round(float x) {  // to the nearest, ties to even, by its bits
    const uint32_t bits = as<uint32_t>(x);
    return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
  }
};

// Scales of GGUF's blocks.
struct Float16 {
  static float one(uint16_t x) {  // the exponent's bits are the same, and its zero is another
    const float magnitude = as<float>(static_cast<uint32_t>(x & 0x7FFFu) << 13) * 0x1p112f;
    return x & 0x8000u ? -magnitude : magnitude;
  }
  static FloatPart load_part(const uint16_t* p) {
#if defined(__AVX512F__)
    return (FloatPart)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__AVX2__)
    return (FloatPart)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
    FloatPart x;
    for (int lane = 0; lane < kPartLanes; ++lane) x[lane] = one(p[lane]);
    return x;
#endif
  }
};

struct Float32 {
  typedef float Stored;
  static FloatPart load_part(const float* p) {
    FloatPart x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  static float round(float x) { return x; }
};

// Part p of vector number v of a head's, zeros beyond head_dim.
template <class KV>
inline FloatPart load_head_part(const typename KV::Stored* head, int64_t head_dim, int v, int p) {
  const int64_t first = v * kLanes + p * kPartLanes, left = head_dim - first;
  if (left >= kPartLanes) return KV::load_part(head + first);
  typename KV::Stored some[kPartLanes] = {};
  if (left > 0) std::memcpy(some, head + first, left * sizeof some[0]);
  return KV::load_part(some);
}

template <class KV>
inline F load_head(const typename KV::Stored* head, int64_t head_dim, int v) {
  F x;
  KAKEYA_EACH_PART(x.part[p] = load_head_part<KV>(head, head_dim, v, p));
  return x;
}

}  // namespace
}  // namespace kakeya
