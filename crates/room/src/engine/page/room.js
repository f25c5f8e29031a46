// Updates the page of a waiting room, and reloads it when it is the visitor's turn.
'use strict'
{
  const room = document.getElementById('room')
  const waits = (state) => state === 'waiting' || state === 'lobby'
  const enter = () => location.replace(location.href)
  const show = (status) => {
    room.dataset.state = status.state
    if (status.state !== 'lobby' && opens) opens.hidden = true
    for (const element of room.querySelectorAll('[data-room]')) {
      const text = status.text[element.dataset.room]
      // Screen readers announce only changed texts.
      if (text !== undefined && element.textContent !== text) element.textContent = text
    }
  }
  const poll = async () => {
    let wait_ms = 10000
    try {
      const response = await fetch(room.dataset.status, { cache: 'no-store', headers: { accept: 'application/json' } })
      const status = await response.json()
      if (!waits(status.state)) return enter()
      show(status)
      wait_ms = status.poll_ms
    } catch {
      // The network or the gateway is unavailable. The visitor keeps the position.
    }
    setTimeout(poll, wait_ms)
  }
  // Only the browser has the visitor's time zone.
  const opens = room?.querySelector('.opens')
  if (opens && room.dataset.opens) {
    const at = new Date(Number(room.dataset.opens))
    opens.firstElementChild.textContent = at.toLocaleString(document.documentElement.lang, { dateStyle: 'medium', timeStyle: 'short' })
    opens.firstElementChild.dateTime = at.toISOString()
    opens.hidden = false
  }
  if (room) setTimeout(waits(room.dataset.state) ? poll : enter, 1000 * room.dataset.refresh)
}
