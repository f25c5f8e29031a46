//! [`weir_fuzz::catalogue`] under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::catalogue(data));
