/**
 * Renders the stored output of an experiment: a place for its live view, around the stored card.
 *
 * The HTML has the same place, but untrusted notebooks lose it. This is safe for them: of the data
 * only the key is used, as an attribute, and the card is sanitized.
 */
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Widget } from '@lumino/widgets';

import { setText } from '../../dom/dom.js';
import { NAME, places } from '../../places.js';

export const MIME = 'application/vnd.det-jupyter.experiment.v1+json';
/** Lower ranks are preferred; HTML has 50. */
export const MIME_RANK = 40;

interface IKept {
  key?: unknown;
  id?: unknown;
  name?: unknown;
  status_word?: unknown;
}

export class ExperimentOutput extends Widget implements IRenderMime.IRenderer {
  constructor(private readonly _options: IRenderMime.IRendererOptions) {
    super();
    places(); // defines the element
    this.addClass('jp-DetOutput');
  }

  renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const kept = (model.data[MIME] ?? {}) as IKept;
    const html = model.data['text/html'];
    if (typeof html === 'string') {
      this._card.innerHTML = this._options.sanitizer.sanitize(html);
    } else {
      setText(this._card, summary(kept));
    }
    this._showPlace(text(kept.key));
    return Promise.resolve();
  }

  /** Updates the card and keeps a live view. */
  private _showPlace(key: string): void {
    if (this._place?.getAttribute('key') === key) {
      return;
    }
    this.addClass('jp-RenderedHTMLCommon');
    this._place = document.createElement(NAME);
    this._place.setAttribute('key', key);
    this._place.append(this._card);
    this.node.replaceChildren(this._place);
  }

  private readonly _card = document.createElement('div');
  private _place: HTMLElement | undefined;
}

function summary({ name, id, status_word: word }: IKept): string {
  return `${text(name)} (experiment ${text(id)}): ${text(word)}`;
}

/** Notebooks may contain any value. */
function text(value: unknown): string {
  return typeof value === 'string' || typeof value === 'number' ? String(value) : '';
}

export const rendererFactory: IRenderMime.IRendererFactory = {
  safe: true,
  mimeTypes: [MIME],
  defaultRank: MIME_RANK,
  createRenderer: options => new ExperimentOutput(options)
};
