/** The item in the status bar: what runs, what waits, how many slots are used. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IStatusBar } from '@jupyterlab/statusbar';
import type { Message } from '@lumino/messaging';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { Commands, IDetJupyter } from '../tokens.js';
import { countsText, linkText } from './statustext.js';
import { h, setAttribute, setHidden, setText } from '../../dom/dom.js';
import { icon } from '../../dom/icons.js';

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
    const text = problem ?? (cluster.news ? countsText(cluster.news, trans) : null);
    setText(this._text, text ?? trans.__('Experiments'));
    // Connecting is no problem, so it has no sign of one.
    setHidden(this._shape, problem === null || link.state === 'connecting');
    const summary = problem === null ? (cluster.news?.summary ?? '') : link.sentence;
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
