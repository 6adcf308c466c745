"use strict";
// Opening and closing, the way to the next problem, arrow keys, and times as the reader's clock shows them. It reads and
// writes no markup: whatever was said in the trace stays text.
(() => {
  const lines = Array.from(document.querySelectorAll(".line"));
  const wrong = Array.from(document.querySelectorAll("li.wrong")).map((item) => item.querySelector(".line"));
  let next = 0;

  const reveal = (line) => {
    for (let box = line.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
    if (line.tagName !== "SUMMARY") line.tabIndex = -1;
    line.focus();
    line.scrollIntoView({ block: "center" });
  };

  const actions = {
    open: () => document.querySelectorAll("main li > details").forEach((box) => { box.open = true; }),
    close: () => document.querySelectorAll("main li > details").forEach((box) => { box.open = false; }),
    wrong: () => { reveal(wrong[next % wrong.length]); next += 1; },
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-action]");
    if (button) actions[button.dataset.action]();
  });

  const move = (line, step) => {
    for (let i = lines.indexOf(line) + step; i >= 0 && i < lines.length; i += step) {
      if (lines[i].tagName === "SUMMARY" && lines[i].getClientRects().length) return lines[i].focus();
    }
  };

  document.addEventListener("keydown", (event) => {
    const line = event.target.closest("summary.line");
    if (!line || event.altKey || event.ctrlKey || event.metaKey) return;
    const box = line.parentElement;
    if (event.key === "ArrowDown") move(line, 1);
    else if (event.key === "ArrowUp") move(line, -1);
    else if (event.key === "ArrowRight") box.open = true;
    else if (event.key === "ArrowLeft") {
      const outer = box.parentElement.closest("details");
      if (!box.open && outer) outer.querySelector("summary").focus();
      else box.open = false;
    } else return;
    event.preventDefault();
  });

  document.querySelectorAll("time").forEach((time) => {
    const moment = new Date(time.dateTime);
    if (!Number.isNaN(moment.getTime())) {
      time.title = time.textContent;
      time.textContent = moment.toLocaleString();
    }
  });

  document.querySelector(".tools").hidden = false;
})();
