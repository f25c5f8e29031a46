//! [`weir_fuzz::room_request`] under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::room_request(data));
