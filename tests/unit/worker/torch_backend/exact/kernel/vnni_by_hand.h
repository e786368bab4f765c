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

// Each lane's sum and two products of pairs of 16 bits.
BY_HAND dpwssd_by_hand(__m512i sums, __m512i x, __m512i y) {
  int16_t a[32], b[32];
  int32_t total[16];
  std::memcpy(a, &x, sizeof a);
  std::memcpy(b, &y, sizeof b);
  std::memcpy(total, &sums, sizeof total);
  for (int i = 0; i < 16; ++i) total[i] += a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1];
  return load_by_hand(total);
}

// The function whose bit i is the answer to x's bit i / 4, y's i / 2 % 2 and z's i % 2.
BY_HAND ternary_by_hand(__m512i x, __m512i y, __m512i z, int function) {
  uint64_t a[8], b[8], c[8], result[8] = {};
  std::memcpy(a, &x, sizeof a);
  std::memcpy(b, &y, sizeof b);
  std::memcpy(c, &z, sizeof c);
  for (int i = 0; i < 8; ++i)
    for (int bit = 0; bit < 8; ++bit)
      if (function >> bit & 1)
        result[i] |= (bit & 4 ? a[i] : ~a[i]) & (bit & 2 ? b[i] : ~b[i]) & (bit & 1 ? c[i] : ~c[i]);
  return load_by_hand(result);
}

BY_HAND widen_bytes_by_hand(__m256i bytes) {
  int8_t x[32];
  int16_t wide[32];
  std::memcpy(x, &bytes, sizeof x);
  for (int i = 0; i < 32; ++i) wide[i] = x[i];
  return load_by_hand(wide);
}

static inline __attribute__((always_inline)) __m512 halves_by_hand(__m256i halves) {
  uint16_t x[16];
  float wide[16];
  std::memcpy(x, &halves, sizeof x);
  for (int i = 0; i < 16; ++i) {
    const int exponent = x[i] >> 10 & 31, fraction = x[i] & 0x3FF;
    const float magnitude = exponent ? __builtin_ldexpf(1024 + fraction, exponent - 25) : __builtin_ldexpf(fraction, -24);
    wide[i] = x[i] & 0x8000 ? -magnitude : magnitude;
  }
  __m512 floats;
  std::memcpy(&floats, wide, sizeof floats);
  return floats;
}

// Of each 16 bytes the lower or the upper halves, their numbers in turn.
template <class Number, bool kUpper>
BY_HAND unpack_by_hand(__m512i x, __m512i y) {
  constexpr int kNum = 64 / sizeof(Number), kLane = 16 / sizeof(Number);
  Number a[kNum], b[kNum], mixed[kNum];
  std::memcpy(a, &x, sizeof a);
  std::memcpy(b, &y, sizeof b);
  for (int i = 0; i < kNum; ++i) {
    const int from = i / kLane * kLane + i % kLane / 2 + (kUpper ? kLane / 2 : 0);
    mixed[i] = i % 2 ? b[from] : a[from];
  }
  return load_by_hand(mixed);
}

#define _mm512_unpacklo_epi8 unpack_by_hand<int8_t, false>
#define _mm512_unpackhi_epi8 unpack_by_hand<int8_t, true>
#define _mm512_unpacklo_epi16 unpack_by_hand<int16_t, false>
#define _mm512_unpackhi_epi16 unpack_by_hand<int16_t, true>
#define _mm512_set1_epi32 set1_by_hand
#define _mm512_load_si512 load_by_hand
#define _mm512_dpbusd_epi32 dpbusd_by_hand
#define _mm512_cvtepu16_epi32 widen_by_hand
#define _mm512_dpwssd_epi32 dpwssd_by_hand
#define _mm512_ternarylogic_epi32 ternary_by_hand
#define _mm512_cvtepi8_epi16 widen_bytes_by_hand
#define _mm512_cvtph_ps halves_by_hand

namespace kakeya {
inline bool runs_by_hand() { return true; }
}  // namespace kakeya
