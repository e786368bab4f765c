// Which variants this processor runs, and the operating system lets it run. Asked of the processor itself: in what zig
// links, __builtin_cpu_supports always says no.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace kakeya {

inline bool runs_portable() { return true; }

#if defined(__x86_64__)

constexpr uint32_t kAvxState = 0x06;     // XCR0: the system saves xmm and ymm,
constexpr uint32_t kAvx512State = 0xE6;  // and mask registers and all of zmm

// Whether CPUID leaf 7 has all these bits in EBX and ECX, and the system saves this state. Who has any of them has F16C.
inline bool has_features(uint32_t ebx_bits, uint32_t ecx_bits, uint32_t state) {
  uint32_t eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE) || !(ecx & bit_F16C)) return false;
  uint32_t saved, high;
  __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  if ((saved & state) != state) return false;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  return (ebx & ebx_bits) == ebx_bits && (ecx & ecx_bits) == ecx_bits;
}

inline bool runs_avx2() { return has_features(bit_AVX2, 0, kAvxState); }
inline bool runs_avx512vnni() {
  return has_features(bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ, bit_AVX512VNNI, kAvx512State);
}

#endif

}  // namespace kakeya
