//! [`weir_fuzz::challenge_solution`] under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::challenge_solution(data));
