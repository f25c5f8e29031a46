//! QR codes of links, as SVG and PNG.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use qrcodegen::{QrCode, QrCodeEcc};

use super::logo::Logo;

/// Permitted image sizes, in pixels per side.
pub const SIZES_PX: std::ops::RangeInclusive<u32> = 64..=2_048;

/// Default image size, in pixels.
pub const DEFAULT_SIZE_PX: u32 = 512;

/// Maximum margin, in modules.
pub const MARGIN_MAX: u32 = 16;

/// Default margin, in modules, as required by ISO/IEC 18004.
pub const DEFAULT_MARGIN: u32 = 4;

/// Minimum side of a module, in pixels. Cameras prefer more, but that depends on the printed size.
const MODULE_PX_MIN: u32 = 2;

/// Minimum contrast of the two colours by WCAG (1 to 21). Readers begin to fail below it.
const CONTRAST_MIN: f64 = 3.0;

/// Maximum side of the logo, in percent of the code's side. It then covers 6 % of the modules; level H recovers 30 %.
const LOGO_PERCENT: i32 = 24;

/// Error correction level: the share of a code that may be lost or covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// 7 %
    L,
    /// 15 %
    #[default]
    M,
    /// 25 %
    Q,
    /// 30 %
    H,
}

/// A colour: red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour(pub [u8; 3]);

/// How a code is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Side of the image, in pixels: within [`SIZES_PX`].
    pub size_px: u32,
    /// Margin, in modules: at most [`MARGIN_MAX`].
    pub margin: u32,
    /// Error correction level.
    pub level: Level,
    /// Colour of the modules.
    pub dark: Colour,
    /// Colour of the background.
    pub light: Colour,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            size_px: DEFAULT_SIZE_PX,
            margin: DEFAULT_MARGIN,
            level: Level::default(),
            dark: Colour([0, 0, 0]),
            light: Colour([0xff, 0xff, 0xff]),
        }
    }
}

/// Why no code is drawn. The message names the parameter and its bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QrError {
    /// The image is too small or too large.
    #[error("size: must be {} to {} pixels", SIZES_PX.start(), SIZES_PX.end())]
    Size,
    /// The margin is too wide.
    #[error("margin: must be 0 to {MARGIN_MAX} modules")]
    Margin,
    /// The level does not exist.
    #[error("level: must be L, M, Q or H")]
    Level,
    /// A colour is invalid.
    #[error("{0}: must be a colour with six hexadecimal digits, such as 1a2b3c")]
    Colour(&'static str),
    /// The contrast is too low for cameras.
    #[error("dark, light: dark must be darker than light, with a contrast of at least 3")]
    Contrast,
    /// The modules would be too small.
    #[error("size: must be at least {least_px} pixels for this link, level and margin")]
    TooSmall {
        /// Minimum size that works, in pixels.
        least_px: u32,
    },
    /// The logo cannot be used.
    #[error("the picture {0}")]
    Logo(&'static str),
    /// The text is too long for a QR code.
    #[error("the link is too long for a QR code of this level")]
    TooLong,
}

impl Level {
    /// Parses the level from its letter.
    ///
    /// # Errors
    /// [`QrError::Level`].
    pub fn parse(letter: &str) -> Result<Self, QrError> {
        match letter {
            "L" => Ok(Self::L),
            "M" => Ok(Self::M),
            "Q" => Ok(Self::Q),
            "H" => Ok(Self::H),
            _ => Err(QrError::Level),
        }
    }

    const fn ecc(self) -> QrCodeEcc {
        match self {
            Self::L => QrCodeEcc::Low,
            Self::M => QrCodeEcc::Medium,
            Self::Q => QrCodeEcc::Quartile,
            Self::H => QrCodeEcc::High,
        }
    }
}

impl Colour {
    /// Parses the colour `RRGGBB`; `name` is the parameter's name.
    ///
    /// # Errors
    /// [`QrError::Colour`].
    pub fn parse(name: &'static str, text: &str) -> Result<Self, QrError> {
        let is_hex = text.len() == 6 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u32::from_str_radix(text, 16).ok().filter(|_| is_hex);
        let [_, rgb @ ..] = number.ok_or(QrError::Colour(name))?.to_be_bytes();
        Ok(Self(rgb))
    }

    fn hex(self) -> String {
        let [red, green, blue] = self.0;
        format!("#{red:02x}{green:02x}{blue:02x}")
    }

    /// The relative luminance of WCAG 2: 0 for black, 1 for white.
    fn luminance(self) -> f64 {
        let linear = |byte: u8| {
            let part = f64::from(byte) / 255.0;
            match part <= 0.040_45 {
                true => part / 12.92,
                false => ((part + 0.055) / 1.055).powf(2.4),
            }
        };
        let [red, green, blue] = self.0.map(linear);
        0.212_6 * red + 0.715_2 * green + 0.072_2 * blue
    }
}

/// A code to be drawn.
struct Drawing {
    code: QrCode,
    /// Modules per side, including the margin.
    side: u32,
    style: Style,
}

impl Drawing {
    fn new(text: &str, style: Style) -> Result<Self, QrError> {
        check(&style)?;
        let code = QrCode::encode_text(text, style.level.ecc()).map_err(|_| QrError::TooLong)?;
        let side = code.size().unsigned_abs() + 2 * style.margin;
        let least_px = side * MODULE_PX_MIN;
        if style.size_px < least_px {
            return Err(QrError::TooSmall { least_px });
        }
        Ok(Self { code, side, style })
    }

    /// Whether the module at this position is dark. Positions include the margin.
    fn is_dark(&self, x: u32, y: u32) -> bool {
        let inner = |at: u32| i32::try_from(at).unwrap_or(i32::MAX) - self.style.margin as i32;
        // Positions outside the code are light.
        self.code.get_module(inner(x), inner(y))
    }

    /// The dark modules of a row as bars: start and width of each.
    fn bars(&self, y: u32) -> Vec<(u32, u32)> {
        let mut bars: Vec<(u32, u32)> = Vec::new();
        for x in (0..self.side).filter(|x| self.is_dark(*x, y)) {
            match bars.last_mut() {
                Some((start, width)) if *start + *width == x => *width += 1,
                _ => bars.push((x, 1)),
            }
        }
        bars
    }

    /// The area of the logo, exactly in the middle: its first module, including the margin, and its side in modules.
    fn middle(&self) -> (u32, u32) {
        let size = self.code.size();
        let modules = size * LOGO_PERCENT / 100;
        // Codes have an odd number of modules.
        let modules = (modules - 1 + modules % 2).max(1);
        let start = ((size - modules) / 2).unsigned_abs() + self.style.margin;
        (start, modules.unsigned_abs())
    }

    /// All pixels with `logo` in the middle, three bytes each.
    fn pixels_with(&self, logo: &Logo) -> Vec<u8> {
        let (module_px, offset_px) = self.scale();
        let (start, modules) = self.middle();
        let (first_px, side_px) = (offset_px + start * module_px, modules * module_px);
        let inside = |px: u32| px.checked_sub(first_px).filter(|at| *at < side_px);
        let (dark, light) = (self.style.dark, self.style.light);
        let mut pixels = Vec::with_capacity(3 * (self.style.size_px as usize).pow(2));
        for y in 0..self.style.size_px {
            let row = self.pixels(y);
            for x in 0..self.style.size_px {
                let byte = row.get((x / 8) as usize).copied().unwrap_or(0);
                let colour = match (inside(x), inside(y)) {
                    (Some(x), Some(y)) => Colour(logo.pixel(x, y, side_px, light.0)),
                    _ if byte & (0x80 >> (x % 8)) != 0 => dark,
                    _ => light,
                };
                pixels.extend(colour.0);
            }
        }
        pixels
    }

    /// Side of a module, and size of the remainder before the first module, in pixels.
    fn scale(&self) -> (u32, u32) {
        let module_px = self.style.size_px / self.side;
        (module_px, (self.style.size_px - module_px * self.side) / 2)
    }

    /// A row of pixels, eight per byte; dark pixels are 1.
    fn pixels(&self, y_px: u32) -> Vec<u8> {
        let (module_px, offset_px) = self.scale();
        let module = |px: u32| px.checked_sub(offset_px).map(|px| px / module_px);
        let mut row = vec![0_u8; self.style.size_px.div_ceil(8) as usize];
        let Some(y) = module(y_px) else {
            return row;
        };
        for x_px in 0..self.style.size_px {
            let is_dark = module(x_px).is_some_and(|x| self.is_dark(x, y));
            if let Some(byte) = row.get_mut((x_px / 8) as usize).filter(|_| is_dark) {
                *byte |= 0x80 >> (x_px % 8);
            }
        }
        row
    }
}

fn check(style: &Style) -> Result<(), QrError> {
    if !SIZES_PX.contains(&style.size_px) {
        return Err(QrError::Size);
    }
    if style.margin > MARGIN_MAX {
        return Err(QrError::Margin);
    }
    let contrast = (style.light.luminance() + 0.05) / (style.dark.luminance() + 0.05);
    if contrast < CONTRAST_MIN {
        return Err(QrError::Contrast);
    }
    Ok(())
}

/// Draws `text` as an SVG image. With a logo in the middle, the code has level H.
///
/// # Errors
/// See [`QrError`].
pub fn svg(text: &str, style: Style, logo: Option<&Logo>) -> Result<String, QrError> {
    use std::fmt::Write as _;
    let style = with_room(style, logo);
    let drawing = Drawing::new(text, style)?;
    let (size_px, side) = (style.size_px, drawing.side);
    let (dark, light) = (style.dark.hex(), style.light.hex());
    let mut path = String::new();
    for y in 0..side {
        for (x, width) in drawing.bars(y) {
            // Writing to a string cannot fail.
            let _ = write!(path, "M{x} {y}h{width}v1h-{width}z");
        }
    }
    let mut picture = String::new();
    if let Some(logo) = logo {
        let (start, modules) = drawing.middle();
        let data = STANDARD.encode(logo.file());
        let _ = write!(
            picture,
            r#"<path fill="{light}" d="M{start} {start}h{modules}v{modules}h-{modules}z"/><image x="{start}" y="{start}" width="{modules}" height="{modules}" href="data:image/png;base64,{data}"/>"#
        );
    }
    Ok(format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{size_px}" height="{size_px}" viewBox="0 0 {side} {side}" shape-rendering="crispEdges"><path fill="{light}" d="M0 0h{side}v{side}H0z"/><path fill="{dark}" d="{path}"/>{picture}</svg>
"#
    ))
}

/// Draws `text` as a PNG image with two colours. All modules have the same size; remaining pixels go to the margin.
/// With a logo in the middle, the code has level H and the image has full colour.
///
/// # Errors
/// See [`QrError`].
pub fn png(text: &str, style: Style, logo: Option<&Logo>) -> Result<Vec<u8>, QrError> {
    let style = with_room(style, logo);
    let drawing = Drawing::new(text, style)?;
    let pixels: Vec<u8> = match logo {
        Some(logo) => drawing.pixels_with(logo),
        None => (0..style.size_px).flat_map(|y| drawing.pixels(y)).collect(),
    };
    let mut image = Vec::new();
    // The image has exactly as many bytes as its size requires, so writing to memory cannot fail.
    write_png(&mut image, style, &pixels, logo.is_some()).map_err(|_| QrError::Size)?;
    Ok(image)
}

/// Raises the level to H if a logo covers part of the code.
fn with_room(style: Style, logo: Option<&Logo>) -> Style {
    let level = if logo.is_some() {
        Level::H
    } else {
        style.level
    };
    Style { level, ..style }
}

fn write_png(
    out: &mut Vec<u8>,
    style: Style,
    rows: &[u8],
    has_colours: bool,
) -> Result<(), png::EncodingError> {
    let mut encoder = png::Encoder::new(out, style.size_px, style.size_px);
    if has_colours {
        encoder.set_color(png::ColorType::Rgb);
    } else {
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_depth(png::BitDepth::One);
        encoder.set_palette([style.light.0, style.dark.0].concat());
    }
    let mut writer = encoder.write_header()?;
    writer.write_image_data(rows)?;
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::logo::tests::picture;

    const TEXT: &str = "https://s.example.com/aZ3k9Qx";

    fn colour(text: &str) -> Colour {
        Colour::parse("dark", text).unwrap()
    }

    /// Reads the code in a picture of `side` × `side` brightness values.
    fn read(side: usize, brightness: impl FnMut(usize, usize) -> u8) -> String {
        let mut image = rqrr::PreparedImage::prepare_from_greyscale(side, side, brightness);
        let grids = image.detect_grids();
        assert_eq!(grids.len(), 1);
        grids[0].decode().unwrap().1
    }

    /// Side and brightness values of a PNG.
    fn decoded(image: &[u8]) -> (usize, Vec<u8>) {
        let mut decoder = png::Decoder::new(std::io::Cursor::new(image));
        decoder.set_transformations(png::Transformations::EXPAND);
        let mut reader = decoder.read_info().unwrap();
        let mut rgb = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut rgb).unwrap();
        assert_eq!(info.width, info.height);
        let grey = rgb.chunks(3).map(|rgb| {
            let sum: u32 = rgb.iter().map(|byte| u32::from(*byte)).sum();
            (sum / 3) as u8
        });
        (info.width as usize, grey.collect())
    }

    #[test]
    fn png_code_of_any_style_decodes_to_its_text() {
        let sizes = [64, 99, 512, 2_048];
        let levels = [Level::L, Level::M, Level::Q, Level::H];
        let colours = [("000000", "ffffff"), ("1a3c8c", "ffe9c0")];
        for (index, size_px) in sizes.into_iter().enumerate() {
            for (dark, light) in colours {
                let style = Style {
                    size_px,
                    margin: if size_px == 64 { 2 } else { 4 },
                    level: if size_px == 64 {
                        Level::L
                    } else {
                        levels[index]
                    },
                    dark: colour(dark),
                    light: colour(light),
                };
                let (side, grey) = decoded(&png(TEXT, style, None).unwrap());
                assert_eq!(side, size_px as usize);
                assert_eq!(read(side, |x, y| grey[y * side + x]), TEXT, "{style:?}");
            }
        }
    }

    /// Renders the SVG's own path: a sequence of `M<x> <y>h<width>v1h-<width>z`.
    #[test]
    fn svg_code_decodes_to_its_text() {
        let image = svg(TEXT, Style::default(), None).unwrap();
        let side: usize = image.split("viewBox=\"0 0 ").nth(1).unwrap()[..2]
            .parse()
            .unwrap();
        let path = image.rsplit("d=\"").next().unwrap();
        let path = path.split('"').next().unwrap();
        let mut dark = vec![false; side * side];
        for bar in path.split('M').skip(1) {
            let (x, rest) = bar.split_once(' ').unwrap();
            let (y, rest) = rest.split_once('h').unwrap();
            let (width, _) = rest.split_once('v').unwrap();
            let [x, y, width] = [x, y, width].map(|text| text.parse::<usize>().unwrap());
            dark[y * side + x..][..width].fill(true);
        }
        let scale = 4;
        let brightness = |x: usize, y: usize| match dark[y / scale * side + x / scale] {
            true => 0,
            false => 255,
        };
        assert_eq!(read(side * scale, brightness), TEXT);
    }

    #[test]
    fn unscannable_code_style_is_refused() {
        let style = Style::default();
        let refused = |style: Style| png(TEXT, style, None).unwrap_err();
        assert_eq!(
            refused(Style {
                size_px: 63,
                ..style
            }),
            QrError::Size
        );
        assert_eq!(
            refused(Style {
                size_px: 2_049,
                ..style
            }),
            QrError::Size
        );
        assert_eq!(
            refused(Style {
                margin: 17,
                ..style
            }),
            QrError::Margin
        );
        let small = Style {
            size_px: 64,
            margin: 16,
            ..style
        };
        let QrError::TooSmall { least_px } = refused(small) else {
            panic!("not too small");
        };
        assert!(
            png(
                TEXT,
                Style {
                    size_px: least_px,
                    ..small
                },
                None
            )
            .is_ok()
        );
        // Light on dark, then pale on white.
        let (black, white) = (colour("000000"), colour("ffffff"));
        let turned = Style {
            dark: white,
            light: black,
            ..style
        };
        assert_eq!(refused(turned), QrError::Contrast);
        let pale = Style {
            dark: colour("ffd040"),
            ..style
        };
        assert_eq!(svg(TEXT, pale, None).unwrap_err(), QrError::Contrast);
        assert_eq!(
            svg(&"x".repeat(4_000), style, None).unwrap_err(),
            QrError::TooLong
        );
    }

    #[test]
    fn levels_and_colours_have_one_spelling() {
        assert_eq!(Level::parse("Q"), Ok(Level::Q));
        for bad in ["", "l", "LL"] {
            assert_eq!(Level::parse(bad), Err(QrError::Level));
        }
        assert_eq!(
            Colour::parse("dark", "0aFF10"),
            Ok(Colour([0x0a, 0xff, 0x10]))
        );
        for bad in ["", "#ffffff", "fff", "+fffff", "12345g", "1234567"] {
            assert_eq!(
                Colour::parse("light", bad),
                Err(QrError::Colour("light")),
                "{bad}"
            );
        }
    }

    #[test]
    fn code_with_a_logo_is_still_decodable() {
        for (width, height, size_px) in [(300, 300, 512), (64, 20, 256), (1, 1, 1_000)] {
            let file = picture(width, height, [190, 20, 20, 255]);
            let logo = Logo::read(&file).unwrap();
            let style = Style {
                size_px,
                level: Level::L,
                ..Style::default()
            };
            let image = png(TEXT, style, Some(&logo)).unwrap();
            let (side, pixels) = decoded(&image);
            assert_eq!(side, size_px as usize);
            let found = read(side, |x, y| pixels[y * side + x]);
            assert_eq!(found, TEXT);
            // The logo is drawn, in its colour.
            let middle = pixels[side / 2 * side + side / 2];
            assert!((1..=250).contains(&middle), "{middle}");
            let drawn = svg(TEXT, style, Some(&logo)).unwrap();
            let data = STANDARD.encode(&file);
            assert!(drawn.contains(&format!(r#"href="data:image/png;base64,{data}""#)));
            assert_eq!(png(TEXT, style, Some(&logo)).unwrap(), image);
        }
    }
}
