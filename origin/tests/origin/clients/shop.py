"""What a shop does with a client that was generated from the origin's OpenAPI document: `shop.py STEP ADMIN PUBLIC TOKEN`.

The headers that a gateway would add come as JSON on standard input.
"""

import json
import sys
import time

from weir.api.admin import audit_sale, create_sale, list_sales, warm_sale
from weir.api.public import create_order, get_order, start_payment
from weir.client import AuthenticatedClient, Client
from weir.models import NewSale, PayHold, PayHoldTime, Problem


def good(answer, status):
    """What a call gave: it must be of the type that the document names for this status."""
    assert answer.status_code == status, (answer.status_code, answer.content)
    assert answer.parsed is not None, answer.content
    return answer.parsed


def make(admin):
    now_ms = int(time.time() * 1000)
    sale = NewSale(id="py", title="By a client", total=3, shards=4, user_cap=1,
                   starts_at_ms=now_ms - 1000, ends_at_ms=now_ms + 3_600_000,
                   payment=PayHold(hold=PayHoldTime(pay_within_ms=600_000)))
    made = good(create_sale.sync_detailed(client=admin, body=sale), 201)
    assert made.payment.hold.pay_within_ms == 600_000
    again = good(create_sale.sync_detailed(client=admin, body=sale), 409)
    assert isinstance(again, Problem) and again.error == "duplicate_sale", again
    assert good(warm_sale.sync_detailed("py", client=admin), 200).shard_count == 4


def buy(public):
    order = good(create_order.sync_detailed(client=public), 201)
    payment = good(start_payment.sync_detailed(order.order, client=public), 201)
    print(json.dumps({"order": order.order, "payment": payment.payment}))


def check(admin, public, order):
    assert good(get_order.sync_detailed(order, client=public), 200).status == "paid"
    books = good(audit_sale.sync_detailed("py", client=admin), 200)
    assert books.balanced and books.terms.orders == 1 and books.terms.stock == 2, books
    page = good(list_sales.sync_detailed(client=admin, limit=1), 200)
    assert [sale.id for sale in page.sales] == ["py"] and page.next_ is None, page


step, admin_url, public_url, token = sys.argv[1:5]
given = json.load(sys.stdin)
operator = AuthenticatedClient(base_url=admin_url, token=token)
buyer = Client(base_url=public_url, headers=given.get("headers", {}))
if step == "make":
    make(operator)
elif step == "buy":
    buy(buyer)
else:
    check(operator, buyer, given["order"])
