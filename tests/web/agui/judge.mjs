// Runs agents with @ag-ui/client. Each line of the input is a command, each line of the output what came of it.
import { createInterface } from "node:readline";
import { HttpAgent } from "@ag-ui/client";

const agents = new Map();

async function run({ id, url, thread, headers, messages, keep, change, state, abortAfter, tell, parameters }) {
  const key = JSON.stringify([url, thread, headers]);
  if (!agents.has(key)) agents.set(key, new HttpAgent({ url, threadId: thread, headers, initialState: state ?? {} }));
  const agent = agents.get(key);
  if (state !== undefined) agent.setState(state);
  if (keep !== undefined) agent.setMessages(agent.messages.slice(0, keep));
  if (change !== undefined) agent.setMessages([...agent.messages.slice(0, -1), { ...agent.messages.at(-1), content: change }]);
  agent.addMessages(messages ?? []);
  const events = [];
  let failed = "";
  const subscriber = {
    onEvent: ({ event }) => {
      events.push(event);
      if (event.type === tell) process.stdout.write(JSON.stringify({ told: id }) + "\n");
      if (event.type === abortAfter) agent.abortRun();
    },
    onRunErrorEvent: ({ event }) => { failed = event.message; },
    onRunFailed: ({ error }) => { failed ||= String(error.message ?? error); return { stopPropagation: true }; },
  };
  let newMessages = [];
  try {
    ({ newMessages } = await agent.runAgent(parameters ?? {}, subscriber));
  } catch (error) {
    failed ||= String(error.message ?? error);
  }
  const { messages: all, state: now, pendingInterrupts } = agent;
  return { id, events, newMessages, messages: all, state: now, pendingInterrupts, failed };
}

console.warn = (...words) => process.stdout.write(JSON.stringify({ warned: words.map(String).join(" ") }) + "\n");
for await (const line of createInterface({ input: process.stdin })) {
  run(JSON.parse(line)).then((found) => process.stdout.write(JSON.stringify(found) + "\n"));
}
