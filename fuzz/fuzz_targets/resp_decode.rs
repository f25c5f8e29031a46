//! [`weir_fuzz::resp_decode`] under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::resp_decode(data));
