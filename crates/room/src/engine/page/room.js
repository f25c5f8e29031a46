// Updates the page of a waiting room, and reloads it when it is the visitor's turn.
'use strict'
{
  const room = document.getElementById('room')
  const waits = (state) => state === 'waiting' || state === 'lobby'
  const enter = () => location.replace(location.href)
  const show = (told) => {
    room.dataset.state = told.state
    if (told.state !== 'lobby' && opens) opens.hidden = true
    for (const place of room.querySelectorAll('[data-room]')) {
      const text = told.text[place.dataset.room]
      // Screen readers announce only changed texts.
      if (text !== undefined && place.textContent !== text) place.textContent = text
    }
  }
  const ask = async () => {
    let wait_ms = 10000
    try {
      const response = await fetch(room.dataset.status, { cache: 'no-store', headers: { accept: 'application/json' } })
      const told = await response.json()
      if (!waits(told.state)) return enter()
      show(told)
      wait_ms = told.poll_ms
    } catch {
      // The network or the gateway is unavailable. The visitor keeps the position.
    }
    setTimeout(ask, wait_ms)
  }
  // Only the browser has the visitor's time zone.
  const opens = room?.querySelector('.opens')
  if (opens && room.dataset.opens) {
    const at = new Date(Number(room.dataset.opens))
    opens.firstElementChild.textContent = at.toLocaleString(document.documentElement.lang, { dateStyle: 'medium', timeStyle: 'short' })
    opens.firstElementChild.dateTime = at.toISOString()
    opens.hidden = false
  }
  if (room) setTimeout(waits(room.dataset.state) ? ask : enter, 1000 * room.dataset.refresh)
}
