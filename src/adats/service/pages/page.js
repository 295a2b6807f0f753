"use strict";
// Fresh parts every five seconds, and values under the pointer. Without this file the page is as it was.
const EVERY = 5000;

async function refresh() {
  if (document.hidden) return;
  const answer = await fetch(location.href, { headers: { "X-Refresh": "1" } });
  if (!answer.ok || answer.redirected) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-part]")) {
    const other = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
    const busy = part.contains(document.activeElement) || part.matches(":hover");
    if (other && !busy && other.innerHTML !== part.innerHTML) part.innerHTML = other.innerHTML;
  }
}

const tip = document.createElement("div");
tip.id = "tip";
tip.hidden = true;
document.body.append(tip);

function show(event) {
  const found = event.target.closest && event.target.closest(".strip, svg a, svg .label");
  if (!found) {
    tip.hidden = true;
    return;
  }
  const title = found.querySelector("title");
  if (title) {  // a browser would show it a second time
    found.dataset.about = title.textContent;
    title.remove();
  }
  tip.textContent = found.dataset.about || "";
  tip.hidden = false;
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4) + "px";
  tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 4) + "px";
}

document.addEventListener("pointermove", show);
document.addEventListener("pointerdown", show);
if (document.querySelector("[data-part]")) setInterval(() => refresh().catch(() => {}), EVERY);
