/** The item in the status bar: numbers of running and waiting experiments, and of used slots. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IStatusBar } from '@jupyterlab/statusbar';
import type { Message } from '@lumino/messaging';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { Commands, IDetJupyter, type LinkState } from '../tokens.js';
import { h, setAttribute, setHidden, setText } from '../../dom/dom.js';
import { icon } from '../../dom/icons.js';
import type { IClusterState } from '../../model/state.js';
import type { ITrans } from '../../model/trans.js';

/** A button; Enter and Space work as on any. */
export class StatusItem extends Widget {
  /**
   * @param _onClick - Called when the item is clicked.
   */
  constructor(
    private readonly _det: IDetJupyter,
    private readonly _onClick: () => void
  ) {
    super({ node: h('div.jp-DetStatus') });
    this._button.append(this._shape, this._text);
    this.node.append(this._button);
    this._button.addEventListener('click', () => this._onClick());
    _det.cluster.changed.connect(this._draw, this);
    _det.linkChanged.connect(this._draw, this);
    this._draw();
  }

  override dispose(): void {
    Signal.clearData(this);
    super.dispose();
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._draw();
  }

  private _draw(): void {
    const { cluster, link, trans } = this._det;
    const problem = linkText(link.state, trans);
    const text = problem ?? (cluster.state ? countsText(cluster.state, trans) : null);
    setText(this._text, text ?? trans.__('Experiments'));
    // Connecting is not shown as a problem.
    setHidden(this._shape, problem === null || link.state === 'connecting');
    const summary = problem === null ? (cluster.state?.summary ?? '') : link.sentence;
    const hint = trans.__('Click to show the experiments');
    setAttribute(this._button, 'title', [summary, hint].filter(part => part !== '').join('\n'));
    setAttribute(this._button, 'data-det-link', link.state);
  }

  private readonly _button = h('button.jp-DetStatus-button', { type: 'button' });
  private readonly _shape = h('span.jp-DetStatus-shape', {}, icon('occupied'));
  private readonly _text = h('span.jp-DetStatus-text');
}

export const statusPlugin: JupyterFrontEndPlugin<void> = {
  id: 'det-jupyter:status',
  description: 'Shows in the status bar what runs, what waits, and how many slots are used.',
  autoStart: true,
  requires: [IDetJupyter],
  optional: [IStatusBar],
  activate: (app: JupyterFrontEnd, det: IDetJupyter, statusBar: IStatusBar | null) => {
    if (statusBar === null) {
      return;
    }
    const item = new StatusItem(det, () => {
      if (app.commands.hasCommand(Commands.showSidebar)) {
        void app.commands.execute(Commands.showSidebar);
      }
    });
    statusBar.registerStatusItem('det-jupyter:status', {
      item,
      align: 'left',
      rank: 4,
      isActive: () => det.settings.get('showStatusBar'),
      activeStateChanged: det.settings.changed
    });
  }
};

/** `2 running · 1 waiting · 6/8 GPUs`. */
export function countsText(state: IClusterState, trans: ITrans): string {
  const { num_running: running, num_waiting: waiting } = state;
  const parts = [
    trans._n('%1 running', '%1 running', running),
    ...(waiting > 0 ? [trans._n('%1 waiting', '%1 waiting', waiting)] : []),
    slotsText(state, trans)
  ];
  return parts.join(' · ');
}

function slotsText(state: IClusterState, trans: ITrans): string {
  const { num_slots: all, num_slots_used: used } = state;
  const slots = state.agents.flatMap(agent => agent.slots);
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

/** Whether a slot's device is a CPU (`CPU`, `cpu:0`), and not the name of a GPU. */
function isCpu(device: string): boolean {
  return /^cpu\b/i.test(device);
}

/** The text instead of the numbers while the link is not up; null if it is. */
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
