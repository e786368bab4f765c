// The AVX-512 instructions of the kernel, spelled out, so that its VNNI variant computes on processors without them.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#define __AVX512F__ 1
#define __AVX512VNNI__ 1

#define BY_HAND static inline __attribute__((always_inline)) __m512i

typedef int32_t ByHand __attribute__((vector_size(64)));

BY_HAND set1_by_hand(int32_t x) { return (__m512i)(ByHand{} + x); }

BY_HAND load_by_hand(const void* from) {
  __m512i x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

// Each lane's sum and four products of an unsigned byte with a signed one.
BY_HAND dpbusd_by_hand(__m512i sums, __m512i unsigned_bytes, __m512i signed_bytes) {
  uint8_t u[64];
  int8_t s[64];
  int32_t total[16];
  std::memcpy(u, &unsigned_bytes, sizeof u);
  std::memcpy(s, &signed_bytes, sizeof s);
  std::memcpy(total, &sums, sizeof total);
  for (int i = 0; i < 64; ++i) total[i / 4] += u[i] * s[i];
  return load_by_hand(total);
}

BY_HAND widen_by_hand(__m256i shorts) {
  uint16_t x[16];
  uint32_t wide[16];
  std::memcpy(x, &shorts, sizeof x);
  for (int i = 0; i < 16; ++i) wide[i] = x[i];
  return load_by_hand(wide);
}

#define _mm512_set1_epi32 set1_by_hand
#define _mm512_load_si512 load_by_hand
#define _mm512_dpbusd_epi32 dpbusd_by_hand
#define _mm512_cvtepu16_epi32 widen_by_hand

namespace kakeya {
inline bool runs_by_hand() { return true; }
}  // namespace kakeya
