//! [`weir_fuzz::signed_user`] under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::signed_user(data));
