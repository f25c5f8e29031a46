// Compiled, not run: the declarations as a shop uses them.
import { Weir, WeirError, type Order, type SaleNow } from '../dist/weir.js';

const weir = new Weir({ url: 'https://shop.example', headers: async () => ({ authorization: 'Bearer x' }) });
weir.events.init({ key: 'wk' });
weir.watch('shoes', (now: SaleNow) => { if (now.state === 'sold_out') console.log(now.remaining); });
const order: Order = await weir.order('shoes', { quantity: 2, payload: { size: '42' }, onWait: ({ room }) => console.log(room?.position) });
const status: 'unpaid' | 'paid' | 'cancelled' | 'expired' = order.status;
const cents: number | undefined = order.price?.unit_amount;
const { orders, next } = await weir.orders({ limit: 10 });
const payUrl: string | null | undefined = orders[0]?.payment?.pay_url;
const fit = (await weir.fits(['1000001'], ['S1']))['1000001']?.S1;
if (fit === 'does_not') throw new WeirError('none', 'does not fit', 0);
// @ts-expect-error a sale has an id
await weir.order();
export { cents, next, payUrl, status };
