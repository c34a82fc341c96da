// Whether this is a build with sanitizers: of tests that then do less, or cannot be run.
//
// g++ defines a macro for each, clang has a feature.
#pragma once

namespace spiritlevel {

#if defined(__has_feature)
#define SPIRITLEVEL_HAS_FEATURE(feature) __has_feature(feature)
#else
#define SPIRITLEVEL_HAS_FEATURE(feature) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || SPIRITLEVEL_HAS_FEATURE(address_sanitizer)
inline constexpr bool kAddressSanitized = true;
#else
inline constexpr bool kAddressSanitized = false;
#endif

#if defined(__SANITIZE_THREAD__) || SPIRITLEVEL_HAS_FEATURE(thread_sanitizer)
inline constexpr bool kThreadSanitized = true;
#else
inline constexpr bool kThreadSanitized = false;
#endif

#undef SPIRITLEVEL_HAS_FEATURE

inline constexpr bool kSanitized = kAddressSanitized || kThreadSanitized;

}  // namespace spiritlevel
