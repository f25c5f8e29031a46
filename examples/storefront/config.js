// Your gateway, and how it knows the user. `cargo xtask up` serves a config.js with its own values.

/** The address of the gateway; '' if the shop and the gateway are one site. */
export const gateway = 'https://sale.example.com';

/** The browser's write key for events; null sends none. */
export const eventKey = 'wk_shop_web';

/** Only for a sandbox: the header in which the gateway takes any user. null: your sign-in sets a cookie. */
export const userHeader = null;
