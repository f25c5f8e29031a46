//! A QR code in a terminal: two modules per character.

use anyhow::{Result, anyhow};
use qrcodegen::{QrCode, QrCodeEcc};

/// Modules around the code. The standard requires four, but current cameras accept two on a terminal's background.
const MARGIN: i32 = 2;

/// White on black, independent of the terminal's colours, because not all readers accept inverted codes.
const COLOURS: &str = "\x1b[40;97m";
const NO_COLOURS: &str = "\x1b[0m";

/// `text` as lines. Without colours, it assumes light text on a dark background.
pub(super) fn lines(text: &str, has_colours: bool) -> Result<Vec<String>> {
    let code = QrCode::encode_text(text, QrCodeEcc::Medium)
        .map_err(|error| anyhow!("no QR code of {text}: {error}"))?;
    let end = code.size() + MARGIN;
    let rows = (-MARGIN..end).step_by(2).map(|y| {
        let line = (-MARGIN..end).map(|x| {
            // The lower half of the last line may be outside the code and stays dark.
            let is_light = |y: i32| y < end && !code.get_module(x, y);
            half_blocks(is_light(y), is_light(y + 1))
        });
        let line: String = line.collect();
        match has_colours {
            true => format!("{COLOURS}{line}{NO_COLOURS}"),
            false => line,
        }
    });
    Ok(rows.collect())
}

/// The character with these halves light.
const fn half_blocks(upper: bool, lower: bool) -> char {
    match (upper, lower) {
        (true, true) => '█',
        (true, false) => '▀',
        (false, true) => '▄',
        (false, false) => ' ',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_qr_code_is_readable() {
        let text = "https://s.example.com/aZ3k9Qx";
        let lines = lines(text, false).unwrap();
        let pixels: Vec<Vec<char>> = lines.iter().map(|line| line.chars().collect()).collect();
        let (scale, side) = (4, pixels[0].len());
        let brightness = |x: usize, y: usize| {
            let (x, y) = (x / scale, y / scale);
            let light = match y % 2 {
                0 => ['█', '▀'],
                _ => ['█', '▄'],
            };
            match light.contains(&pixels[y / 2][x]) {
                true => 255,
                false => 0,
            }
        };
        let mut image =
            rqrr::PreparedImage::prepare_from_greyscale(side * scale, side * scale, brightness);
        let grids = image.detect_grids();
        assert_eq!(grids[0].decode().unwrap().1, text);
    }

    #[test]
    fn colours_are_reset_at_the_end_of_each_line() {
        for line in lines("x", true).unwrap() {
            assert!(line.starts_with(COLOURS) && line.ends_with(NO_COLOURS));
        }
    }
}
