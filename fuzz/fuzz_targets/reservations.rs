#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cairn_fuzzed::run("reservations", bytes));
