/** The words of the status bar. Knows no JupyterLab. */
import type { IClusterNews } from '../../model/state.js';
import type { ITrans } from '../../model/trans.js';
import type { LinkState } from '../tokens.js';

/** `2 running · 1 waiting · 6/8 GPUs`. */
export function countsText(news: IClusterNews, trans: ITrans): string {
  const { num_running: running, num_waiting: waiting } = news;
  const parts = [
    trans._n('%1 running', '%1 running', running),
    ...(waiting > 0 ? [trans._n('%1 waiting', '%1 waiting', waiting)] : []),
    slotsText(news, trans)
  ];
  return parts.join(' · ');
}

function slotsText(news: IClusterNews, trans: ITrans): string {
  const { num_slots: all, num_slots_used: used } = news;
  const slots = news.agents.flatMap(agent => agent.slots);
  const numCpu = slots.filter(slot => isCpu(slot.device)).length;
  if (all === 0) {
    return trans.__('no slots');
  }
  if (numCpu === 0) {
    return trans._n('%2/%1 GPU', '%2/%1 GPUs', all, used);
  }
  return numCpu === slots.length
    ? trans._n('%2/%1 CPU slot', '%2/%1 CPU slots', all, used)
    : trans._n('%2/%1 slot', '%2/%1 slots', all, used);
}

/** A slot's device is `CPU`, `cpu:0` and the like, or the name of a GPU. */
function isCpu(device: string): boolean {
  return /^cpu\b/i.test(device);
}

/** What stands in place of the numbers while there are none; null when they are true. */
export function linkText(state: LinkState, trans: ITrans): string | null {
  const words: Record<LinkState, string | null> = {
    connecting: trans.__('Experiments: connecting…'),
    up: null,
    cut: trans.__('Experiments: not connected'),
    'no-extension': trans.__('Experiments: no server extension'),
    'no-master': trans.__('Experiments: stopped'),
    mismatch: trans.__('Experiments: versions differ'),
    refused: trans.__('Experiments: no access')
  };
  return words[state];
}
